"""The mutants: bugs found in public Transformers, and classic ones, as small patches of our own code.

One is planted at a time, in memory (`plant.py`), and the test that it names must fail (`test_mutants.py`). `matrix.py`
finds out which other suites catch it.

A bug in forward mostly comes with its own correct gradient, as automatic differentiation would give it. Finite
differences cannot see such a bug, so other tests must.
"""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Patch(NamedTuple):
    """Replace `before`, which must occur exactly once in the file, by `after`."""

    file: str
    before: str
    after: str

    def applied(self, text: str) -> str:
        if text.count(self.before) != 1:
            raise ValueError(f"{self.file} holds this {text.count(self.before)} times, not once: {self.before}")
        return text.replace(self.before, self.after)


class Mutant(NamedTuple):
    """One bug.

    name       the name to plant it by
    origin     the public implementation it was found in, as owner/repository, or CLASSIC for a common mistake
    what       what is wrong, in a sentence or two
    suspect    the broken part, one of SUSPECTS, which `scratchformer doctor` should name;
               "" if the bug is not in the model (but in a tokenizer or a score, say), so that doctor cannot see it
    caught_by  the test that must fail: path::name, with the id of its parameters if one suffices
    patches    the change itself
    """

    name: str
    origin: str
    what: str
    suspect: str
    caught_by: str
    patches: list[Patch]


SUSPECTS = (
    "Linear",
    "Embedding",
    "Unembedding",
    "PositionalEncoding",
    "LearnedPositions",
    "LayerNorm",
    "AddNorm",
    "FeedForward",
    "ScaledDotProductAttention",
    "SelfAttention",
    "CrossAttention",
    "HeadGate",
    "GatedAttention",
    "Convolution",
    "SeparableConvolution",
    "RestrictedAttention",
    "RestrictedSelfAttention",
    "PostNorm",
    "PreNorm",
    "EncoderLayer",
    "DecoderLayer",
    "Encoder",
    "Decoder",
    "NextWord",
    "Transformer",
    "TokenTypes",
    "LanguageModel",
    "TextEncoder",
    "cross_entropy",
    "dropout",
    "Adam",
    "noam",
    "PatchEmbedding",
    "ClassToken",
    "VisionTransformer",
    "decoding step",
    "Trainer.step",
    "batches",
)
"""A class or function includes its operations in `nn/ops.py`; "decoding step" is `decoding/incremental.py` with all
that it calls; "batches" is `text/batches.py`."""

CLASSIC = "classic"
AKIRUSPROD = "AkiRusProd/numpy-transformer"
NEUNET = "AkiRusProd/numpy-nn-model"
ANNOTATED = "harvardnlp/annotated-transformer"
CSD81 = "csd81/attention-is-all-you-need-numpy"
HYUNWOONGKO = "hyunwoongko/transformer"
RZIGA = "rziga/numpy-is-all-you-need"
ULTRON09 = "Ultron09/Numpy-Transformer"
YVSEMLANI = "YVSemlani/numpy-transformer"

OPS = "scratchformer/nn/ops.py"
DROPOUT = "scratchformer/nn/dropout.py"
LAYERS = "scratchformer/nn/layers.py"
ATTENTION = "scratchformer/nn/attention.py"
LANGUAGE_MODEL = "scratchformer/nn/language_model.py"
TRANSFORMER = "scratchformer/nn/transformer.py"
HEAD_GATE = "scratchformer/nn/head_gate.py"
NEXT_WORD = "scratchformer/nn/next_word.py"
RESIDUAL = "scratchformer/nn/residual.py"
TEXT_ENCODER = "scratchformer/nn/text_encoder.py"
SEQUENCE_LAYERS = "scratchformer/nn/sequence_layers.py"
LOSS = "scratchformer/nn/loss.py"
OPTIM = "scratchformer/nn/optim.py"
GRADCHECK = "scratchformer/nn/gradcheck.py"
PARAMETER = "scratchformer/nn/parameter.py"
MODEL = "scratchformer/nn/model.py"
VISION = "scratchformer/nn/vision.py"
INCREMENTAL = "scratchformer/decoding/incremental.py"
GENERATION = "scratchformer/decoding/generation.py"
SEARCH = "scratchformer/decoding/search.py"
TRANSLATOR = "scratchformer/decoding/translator.py"
BATCHES = "scratchformer/text/batches.py"
WINDOWS = "scratchformer/text/windows.py"
TOKENIZER = "scratchformer/text/tokenizer.py"
MASKING = "scratchformer/text/masking.py"
CHECKPOINTS = "scratchformer/training/checkpoints.py"
LOOP = "scratchformer/training/loop.py"
TRAINER = "scratchformer/training/trainer.py"
SAVING = "scratchformer/training/saving.py"
MODEL_CODE = "scratchformer/training/model_code.py"
VALIDATION = "scratchformer/training/validation.py"
GRADIENT = "scratchformer/parallel/gradient.py"
DATA_PARALLEL = "scratchformer/training/data_parallel.py"
TRANSLATION = "scratchformer/tasks/translation.py"
HEAD_REPORT = "scratchformer/experiments/head_report.py"

DIFFERENCES = "tests/nn/test_gradients.py::test_backward_agrees_with_finite_differences"
IN_CHECKS = "tests/nn/test_checks.py::test_a_component_passes"
IN_MODEL = "tests/nn/test_model.py::test_"
IN_GRADCHECK = "tests/nn/test_gradcheck.py::test_"
IN_PARAMETERS = "tests/nn/test_parameters.py::test_"
IN_MASKING = "tests/text/test_masking.py::test_"
IN_SEARCH = "tests/decoding/test_search.py::test_"
IN_WINDOWS = "tests/text/test_windows.py::test_"
IN_GENERATION = "tests/decoding/test_generation.py::test_"
IN_TRANSLATOR = "tests/decoding/test_translator.py::test_"
IN_BATCHES = "tests/text/test_batches.py::test_"
IN_TOKENIZER = "tests/text/test_tokenizer.py::test_"
IN_CHECKPOINTS = "tests/training/test_checkpoints.py::test_"
IN_LOOP = "tests/training/test_loop.py::test_"
IN_RANKS = "tests/training/test_ranks.py::test_"
IN_RESUME = "tests/training/test_resume.py::test_"

MUTANTS = [
    # Attention --------------------------------------------------------------------------------------------------------
    Mutant(
        "softmax-divided-by-batch",
        AKIRUSPROD,
        "The backward of softmax divides by the batch size, as if it were the loss: right for a batch of one.",
        "ScaledDotProductAttention",
        f"{DIFFERENCES}[ScaledDotProductAttention: ragged padding, dropout 0.0]",
        [Patch(OPS, "        dscores *= scale\n", "        dscores *= scale / len(dscores)\n")],
    ),
    Mutant(
        "softmax-over-queries",
        CLASSIC,
        "Softmax runs over the queries instead of the keys: the weights of a query need not sum to one.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        [
            Patch(OPS, "highest = scores.max(axis=-1,", "highest = scores.max(axis=-2,"),
            Patch(OPS, "total = weights.sum(axis=-1,", "total = weights.sum(axis=-2,"),
            Patch(
                OPS,
                'dweights - self.xp.einsum("...s,...s->...", dweights, weights)[..., None]',
                "dweights - (dweights * weights).sum(axis=-2, keepdims=True)",
            ),
        ],
    ),
    Mutant(
        "scores-not-scaled",
        CLASSIC,
        "1 / sqrt(d_k) is missing, in forward and in backward: the right gradient of another function.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        [Patch(ATTENTION, "scale = 1 / math.sqrt(q.shape[-1])", "scale = 1.0")],
    ),
    Mutant(
        "scores-scaled-by-d-model",
        NEUNET,
        "The scores are divided by sqrt(d_model) instead of sqrt(d_k): right for a single head.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        [Patch(ATTENTION, "scale = 1 / math.sqrt(q.shape[-1])", "scale = 1 / math.sqrt(q.shape[-2] * q.shape[-1])")],
    ),
    Mutant(
        "heads-split-without-transpose",
        CLASSIC,
        "(B, T, H, K) is reshaped into (B, H, T, K) where the axes should be swapped: heads mix positions.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        [Patch(OPS, "    return x.swapaxes(1, 2)\n", "    B, T, H, K = x.shape\n    return x.reshape(B, H, T, K)\n")],
    ),
    Mutant(
        "dv-from-weights-before-dropout",
        ULTRON09,
        "The gradient of the values uses the weights before dropout: right as long as nothing is dropped.",
        "ScaledDotProductAttention",
        f"{DIFFERENCES}[ScaledDotProductAttention: causal, dropout 0.3]",
        [
            Patch(
                OPS,
                "self.matmul(transposed(dropped), by_head(dy), out=by_head(dv))",
                "self.matmul(transposed(weights), by_head(dy), out=by_head(dv))",
            )
        ],
    ),
    Mutant(
        "dq-and-dk-swapped",
        CLASSIC,
        "The gradients of queries and keys go back in the wrong order: all shapes fit.",
        "SelfAttention",
        f"{DIFFERENCES}[SelfAttention: ragged padding, dropout 0.0]",
        [Patch(ATTENTION, "join_heads(dq, dk, dv)", "join_heads(dk, dq, dv)")],
    ),
    Mutant(
        "cross-attention-mixes-its-inputs",
        RZIGA,
        "Cross-attention takes queries and keys from the encoder and values from the decoder, so each position sees "
        "later ones. Where T = S every gradient is right; T != S raises, as it did there.",
        "CrossAttention",
        f"{IN_CHECKS}[CrossAttention: formulas]",
        [
            Patch(ATTENTION, "projected, q_cache = self.q.forward(x)", "projected, q_cache = self.q.forward(memory)"),
            Patch(
                ATTENTION,
                """\
            k, v, memory_cache = self.keys_and_values(memory)
""",
                """\
            k, _, memory_cache = self.keys_and_values(memory)
            _, v, x_cache = self.keys_and_values(x)
""",
            ),
            Patch(ATTENTION, "return y, (q_cache, memory_cache,", "return y, (q_cache, (memory_cache, x_cache),"),
            Patch(
                ATTENTION,
                """\
        dmemory = self.kv.backward(join_heads(dk, dv), memory_cache)
        # q = split_heads(x W_Q + b_Q)
        return self.q.backward(join_heads(dq), q_cache), dmemory
""",
                """\
        memory_cache, x_cache = memory_cache
        dmemory = self.kv.backward(join_heads(dk, 0 * dv), memory_cache)
        dx = self.kv.backward(join_heads(0 * dk, dv), x_cache)
        return dx, dmemory + self.q.backward(join_heads(dq), q_cache)
""",
            ),
        ],
    ),
    Mutant(
        "head-gate-averages-the-batch",
        CLASSIC,
        "The gradient of a gate is the mean over the batch, not the sum: right for a batch of one.",
        "HeadGate",
        f"{DIFFERENCES}[HeadGate: a batch of sequences, dropout 0.0]",
        [Patch(HEAD_GATE, "(dy * heads).sum(axis=(0, 1, 3))", "(dy * heads).mean(axis=0).sum(axis=(0, 2))")],
    ),
    Mutant(
        "head-importance-of-the-mean-gradient",
        CLASSIC,
        "The absolute value is taken of the mean gradient: a head that helps some sentences and harms others is worth "
        "nothing.",
        "",
        "tests/experiments/test_head_report.py::test_the_absolute_value_is_taken_of_each_sentence",
        [
            Patch(
                HEAD_REPORT,
                "np.abs(gate_gradients(translator, text)).sum(axis=0)",
                "np.abs(gate_gradients(translator, text).sum(axis=0))",
            )
        ],
    ),
    Mutant(
        "gate-passed-by-in-backward",
        CLASSIC,
        "Attention gets the gradient of what comes out of the gates, not of what goes in: right while all are open.",
        "GatedAttention",
        f"{DIFFERENCES}[GatedAttention: ragged padding, dropout 0.0]",
        [
            Patch(
                HEAD_GATE,
                "self.attention.backward(dheads, attention_cache)",
                "self.attention.backward(dy, attention_cache)",
            )
        ],
    ),
    # Masks ------------------------------------------------------------------------------------------------------------
    Mutant(
        "no-causal-mask",
        YVSEMLANI,
        "The decoder is trained without a causal mask and reads its answer.",
        "Transformer",
        f"{IN_CHECKS}[Transformer: dependence on positions [post]]",
        [
            Patch(
                TRANSFORMER,
                "x, memory, Mask(causal=True), memory_mask, rng=rng and rng.child(3)",
                "x, memory, Mask(), memory_mask, rng=rng and rng.child(3)",
            )
        ],
    ),
    Mutant(
        "causal-mask-one-too-far",
        CLASSIC,
        "The causal mask lets each position see the next one, which is the word it must predict.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: dependence on positions 3 [post]]",
        [Patch(OPS, "key <= xp.arange(S - T, S)[:, None]", "key <= 1 + xp.arange(S - T, S)[:, None]")],
    ),
    Mutant(
        "mask-after-softmax",
        CLASSIC,
        "The weights are masked after the softmax: what is masked keeps its share of the sum.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        [
            Patch(
                OPS,
                """\
        if key_lengths is not None or causal:
            T, S = scores.shape[-2:]
            scores += xp.where(allowed(xp, T, S, key_lengths, causal), 0, -math.inf).astype(scores.dtype)
""",
                "",
            ),
            Patch(
                OPS,
                """\
        weights /= xp.where(total == 0, 1, total)
""",
                """\
        weights /= total
        weights *= allowed(xp, *weights.shape[-2:], key_lengths, causal)
""",
            ),
        ],
    ),
    Mutant(
        "nothing-to-attend-to-gives-nan",
        AKIRUSPROD,
        "A query whose keys are all masked divides zero by zero, and the NaN spreads through the batch's gradient.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        [
            Patch(OPS, "scores -= xp.where(highest == -math.inf, 0, highest)", "scores -= highest"),
            Patch(OPS, "weights /= xp.where(total == 0, 1, total)", "weights /= total"),
        ],
    ),
    Mutant(
        "padding-mask-on-queries",
        HYUNWOONGKO,
        "The padding mask blanks rows of the score matrix instead of columns: padding is read like text.",
        "ScaledDotProductAttention",
        f"{IN_CHECKS}[ScaledDotProductAttention: dependence on positions 2 [post]]",
        [
            Patch(
                OPS,
                "(key < key_lengths[:, None])[:, None, None, :]",
                "(xp.arange(T) < key_lengths[:, None])[:, None, :, None]",
            )
        ],
    ),
    Mutant(
        "mask-inverted",
        CLASSIC,
        "The mask says where padding is, but attention takes it for where words are: a source without padding is "
        "never read.",
        "Transformer",
        f"{IN_CHECKS}[Transformer: dependence on positions [post]]",
        [
            Patch(
                TRANSFORMER,
                "Mask(key_lengths=lengths_of(source_ids))",
                "Mask(key_lengths=source_ids.shape[1] - lengths_of(source_ids))",
            )
        ],
    ),
    Mutant(
        "language-model-sees-the-future",
        CLASSIC,
        "The layers of the encoder get no causal mask: each word is predicted from itself and from those after it.",
        "LanguageModel",
        f"{IN_CHECKS}[LanguageModel: dependence on positions [post]]",
        [Patch(LANGUAGE_MODEL, "Mask(causal=True)", "Mask()")],
    ),
    Mutant(
        "padding-seen-by-cross-attention",
        CLASSIC,
        "The encoder gets the source mask, cross-attention does not, so it attends to padding.",
        "Transformer",
        f"{IN_CHECKS}[Transformer: dependence on positions 2 [post]]",
        [
            Patch(
                TRANSFORMER,
                "x, memory, Mask(causal=True), memory_mask, rng=rng and rng.child(3)",
                "x, memory, Mask(causal=True), Mask(), rng=rng and rng.child(3)",
            )
        ],
    ),
    Mutant(
        "cross-attention-is-causal",
        CLASSIC,
        "Cross-attention gets the decoder's own mask: it sees padding, and does not see the end of the source.",
        "DecoderLayer",
        f"{IN_CHECKS}[DecoderLayer: dependence on positions 2 [post]]",
        [Patch(TRANSFORMER, "x, memory, memory_mask, of_memory, rng", "x, memory, mask, of_memory, rng")],
    ),
    Mutant(
        "encoder-is-causal",
        CLASSIC,
        "The encoder looks only back, like a decoder.",
        "EncoderLayer",
        f"{IN_CHECKS}[EncoderLayer: dependence on positions [post]]",
        [
            Patch(
                TRANSFORMER,
                """\
        x, self_attention_cache = self.self_attention.forward(x, mask, kv_cache, rng=rng and rng.child(0))
        y, feed_forward_cache
""".rstrip("\n"),
                """\
        mask = Mask(mask.key_lengths, True)
        x, self_attention_cache = self.self_attention.forward(x, mask, kv_cache, rng=rng and rng.child(0))
        y, feed_forward_cache
""".rstrip("\n"),
            )
        ],
    ),
    # Embeddings and positions -----------------------------------------------------------------------------------------
    Mutant(
        "repeated-words-overwrite",
        CLASSIC,
        "`dE[ids] += dx` adds only once for a word that occurs twice, because NumPy buffers the sum.",
        "Embedding",
        f"{DIFFERENCES}[Embedding: repeated words and padding, dropout 0.0]",
        [Patch(OPS, "self.xp.add.at(dE, ids[real], dx[real] * scale)", "dE[ids[real]] += dx[real] * scale")],
    ),
    Mutant(
        "embedding-gradient-not-scaled",
        CSD81,
        "sqrt(d_model) multiplies the embedding in forward but not its gradient; with a tied matrix only one of the "
        "two contributions is wrong.",
        "Embedding",
        f"{DIFFERENCES}[Embedding: repeated words and padding, dropout 0.0]",
        [Patch(OPS, "self.xp.add.at(dE, ids[real], dx[real] * scale)", "self.xp.add.at(dE, ids[real], dx[real])")],
    ),
    Mutant(
        "embedding-not-scaled",
        CLASSIC,
        "sqrt(d_model) is missing in forward and backward: the positions drown the words.",
        "Embedding",
        f"{IN_CHECKS}[Embedding: formulas]",
        [Patch(LAYERS, "self.scale = math.sqrt(weight.shape[1])", "self.scale = 1.0")],
    ),
    Mutant(
        "embedding-too-large-at-first",
        CLASSIC,
        "The embedding is drawn from N(0, 1), as frameworks do by default: with a tied output the first loss is far "
        "above ln V.",
        "Embedding",
        f"{IN_CHECKS}[Embedding: initial sizes]",
        [
            Patch(
                LAYERS,
                "init.normal(0, d_model**-0.5, (vocab_size, d_model))",
                "init.normal(0, 1, (vocab_size, d_model))",
            )
        ],
    ),
    Mutant(
        "tied-gradient-dropped",
        ULTRON09,
        "The output layer's contribution to the gradient of the tied matrix is dropped.",
        "Unembedding",
        f"{DIFFERENCES}[Unembedding: a batch of sequences, dropout 0.0]",
        [Patch(LAYERS, "        ops.add_product_inplace(self.weight.grad, rows.T, rows_of(y))\n", "")],
    ),
    Mutant(
        "gradient-cut-loose",
        CLASSIC,
        "`grad = grad + g` makes a new array: the gradient is right, but the optimizer does not see it.",
        "Unembedding",
        f"{IN_CHECKS}[Unembedding: layer contract]",
        [
            Patch(
                LAYERS,
                "ops.add_product_inplace(self.weight.grad, ",
                "self.weight.grad = self.weight.grad + ops.matmul(",
            )
        ],
    ),
    Mutant(
        "tied-only-at-first",
        ULTRON09,
        "The output matrix is a copy of the embedding and differs from it after the first step (in the original, "
        "after loading).",
        "Transformer",
        f"{IN_CHECKS}[Transformer: structure [post]]",
        [Patch(TRANSFORMER, "output = target if", "output = Parameter(target.data.copy()) if")],
    ),
    Mutant(
        "positions-of-base-100000",
        RZIGA,
        "The wavelengths of the positional encoding grow to 100000 instead of 10000.",
        "PositionalEncoding",
        f"{IN_MODEL}positions_have_known_values",
        [Patch(LAYERS, "position / 10000 **", "position / 100000 **")],
    ),
    Mutant(
        "positions-without-pairs",
        YVSEMLANI,
        "The exponent is 2i / d_model over all channels i, not over pairs: sine and cosine differ in frequency, and "
        "half the channels hardly move.",
        "PositionalEncoding",
        f"{IN_MODEL}positions_have_known_values",
        [Patch(LAYERS, "(2 * (channel // 2) / d_model)", "(2 * channel / d_model)")],
    ),
    Mutant(
        "positions-in-float64",
        CLASSIC,
        "The table of positions is float64, so everything computed after it is float64: twice the memory, and no "
        "error message.",
        "PositionalEncoding",
        f"{IN_CHECKS}[PositionalEncoding: layer contract]",
        [Patch(LAYERS, "sinusoids(0, rows, x.shape[2]).astype(x.dtype)", "sinusoids(0, rows, x.shape[2])")],
    ),
    Mutant(
        "learned-positions-gradient-at-zero",
        CLASSIC,
        "The gradient of learned positions goes to the first rows, wherever the sequence begins.",
        "LearnedPositions",
        f"{DIFFERENCES}[LearnedPositions: the last position, B = 1, dropout 0.0]",
        [Patch(LAYERS, "self.weight.grad[first : first + dx.shape[1]] +=", "self.weight.grad[: dx.shape[1]] +=")],
    ),
    # Linear, feed-forward, normalisation, residuals -------------------------------------------------------------------
    Mutant(
        "bias-gradient-averaged",
        CLASSIC,
        "The gradient of the bias is the mean over the batch instead of the sum.",
        "Linear",
        f"{DIFFERENCES}[Linear: a batch of sequences, dropout 0.0]",
        [Patch(OPS, "total += rows.sum(axis=0)", "total += rows.mean(axis=0)")],
    ),
    Mutant(
        "gradient-overwritten",
        CLASSIC,
        "`grad = ` instead of `grad +=`: only the last micro-batch counts.",
        "Linear",
        f"{IN_CHECKS}[Linear: layer contract]",
        [Patch(OPS, "self.add_product_inplace(dW, x_rows.T, dy_rows)", "dW[...] = self.matmul(x_rows.T, dy_rows)")],
    ),
    Mutant(
        "relu-backward-in-place",
        CLASSIC,
        "The backward of ReLU writes into the gradient it is given: harmless until someone else needs that array.",
        "FeedForward",
        f"{IN_CHECKS}[FeedForward: layer contract 3]",
        [Patch(OPS, "        return dy * (y > 0)\n", "        dy *= y > 0\n        return dy\n")],
    ),
    Mutant(
        "relu-dropout-not-undone",
        CLASSIC,
        "The hidden units are dropped in forward and not in backward: right as long as relu_dropout is 0.",
        "FeedForward",
        f"{DIFFERENCES}[FeedForward: a batch of sequences, dropout 0.3]",
        [Patch(LAYERS, "dactive = ops.dropout_backward(ddropped, kept, self.relu_dropout)", "dactive = ddropped")],
    ),
    Mutant(
        "gelu-slope-of-the-cube",
        CLASSIC,
        "The slope of 0.044715 x^3 in the backward of GELU lacks its factor 3: right near x = 0.",
        "FeedForward",
        f"{DIFFERENCES}[FeedForward: GELU, dropout 0.0]",
        [Patch(OPS, "(1 + 3 * GELU_CUBIC * x * x)", "(1 + GELU_CUBIC * x * x)")],
    ),
    Mutant(
        "gamma-outside-the-means",
        AKIRUSPROD,
        "The backward of LayerNorm multiplies by gamma after the two means, not before: right while gamma is 1.",
        "LayerNorm",
        f"{DIFFERENCES}[LayerNorm: far from mean 0, dropout 0.0]",
        [
            Patch(OPS, "dnormalized = dy * gamma", "dnormalized = dy"),
            Patch(OPS, "        dx *= inverse_std\n", "        dx *= inverse_std * gamma\n"),
        ],
    ),
    Mutant(
        "unbiased-variance",
        ANNOTATED,
        "LayerNorm divides by the unbiased variance (D - 1), as a framework's `std` does.",
        "LayerNorm",
        f"{IN_CHECKS}[LayerNorm: formulas]",
        [
            Patch(OPS, "[..., None] / x.shape[-1]", "[..., None] / (x.shape[-1] - 1)"),
            Patch(OPS, "[..., None] / dy.shape[-1]", "[..., None] / (dy.shape[-1] - 1)"),
        ],
    ),
    Mutant(
        "eps-outside-the-root",
        ANNOTATED,
        "LayerNorm divides by sqrt(variance) + eps instead of sqrt(variance + eps).",
        "LayerNorm",
        f"{IN_CHECKS}[LayerNorm: formulas]",
        [
            Patch(OPS, "1 / self.xp.sqrt(variance + eps)", "1 / (self.xp.sqrt(variance) + eps)"),
            Patch(
                OPS, "return y, (normalized, inverse_std)", "return y, (normalized, inverse_std, 1 - eps * inverse_std)"
            ),
            Patch(OPS, "normalized, inverse_std = saved", "normalized, inverse_std, root_over_divisor = saved"),
            Patch(OPS, "dx -= normalized * along_itself", "dx -= normalized * along_itself / root_over_divisor"),
        ],
    ),
    Mutant(
        "layer-norm-without-eps",
        RZIGA,
        "LayerNorm of a constant row divides zero by zero.",
        "LayerNorm",
        f"{IN_CHECKS}[LayerNorm: formulas]",
        [Patch(OPS, "self.xp.sqrt(variance + eps)", "self.xp.sqrt(variance)")],
    ),
    Mutant(
        "residual-gradient-dropped",
        CLASSIC,
        "The gradient through the residual connection is forgotten: the lower layers hardly learn.",
        "PostNorm",
        f"{DIFFERENCES}[PostNorm: around feed-forward, dropout 0.0]",
        [Patch(RESIDUAL, "dx = dx + dx_through", "dx = dx_through")],
    ),
    Mutant(
        "residual-added-in-place",
        CLASSIC,
        "`x += update` saves an array and overwrites the x that the sublayer kept for its backward.",
        "AddNorm",
        f"{DIFFERENCES}[PostNorm: around feed-forward, dropout 0.0]",
        [
            Patch(
                OPS,
                "        y, saved = self.layer_norm(x + dropped, gamma, beta, eps)\n",
                """\
        x += dropped
        y, saved = self.layer_norm(x, gamma, beta, eps)
""",
            )
        ],
    ),
    Mutant(
        "pre-norm-around-the-normalised",
        CLASSIC,
        "With pre-norm, the residual connection starts after the LayerNorm: no signal passes through unchanged.",
        "PreNorm",
        f"{IN_CHECKS}[PreNorm: formulas]",
        [
            Patch(RESIDUAL, "return x + dropped, (norm_cache", "return n + dropped, (norm_cache"),
            Patch(
                RESIDUAL, "dx = dy + self.norm.backward(dn, norm_cache)", "dx = self.norm.backward(dy + dn, norm_cache)"
            ),
        ],
    ),
    # Stacks -----------------------------------------------------------------------------------------------------------
    Mutant(
        "memory-gradient-of-one-layer",
        CLASSIC,
        "The encoder gets its gradient from one decoder layer only: the gradients of the others are overwritten.",
        "Decoder",
        f"{DIFFERENCES}[Decoder: post-norm, dropout 0.0]",
        [Patch(TRANSFORMER, "[d + share for d, share in zip(dothers, shares)] if dothers else shares", "shares")],
    ),
    Mutant(
        "one-layer-n-times",
        CLASSIC,
        "`[layer] * N` is one layer N times: every gradient is right, but the encoder has only an N-th of its weights.",
        "Encoder",
        f"{IN_MODEL}number_of_parameters[C1]",
        [
            Patch(
                TRANSFORMER,
                "[self.kind(config, init, dtype) for _ in range(config.N)]",
                "[self.kind(config, init, dtype)] * config.N if self.kind is EncoderLayer else "
                "[self.kind(config, init, dtype) for _ in range(config.N)]",
            )
        ],
    ),
    Mutant(
        "seed-of-the-weights-ignored",
        CLASSIC,
        "Every run starts from the same weights, whatever the seed.",
        "Transformer",
        f"{IN_CHECKS}[Transformer: structure 3 [post]]",
        [Patch(TRANSFORMER, "np.random.default_rng(seed)", "np.random.default_rng(0)")],
    ),
    # Dropout ----------------------------------------------------------------------------------------------------------
    Mutant(
        "inference-scaled",
        AKIRUSPROD,
        "At inference nothing is dropped, but everything is multiplied by 1 / (1 - p).",
        "dropout",
        f"{IN_CHECKS}[dropout: dropout [post]]",
        [
            Patch(
                OPS,
                "        if rng is None or P_drop == 0:\n            return x, None\n",
                """\
        if P_drop == 0:
            return x, None
        if rng is None:
            return x * keep_scale(P_drop), None
""",
            )
        ],
    ),
    Mutant(
        "dropout-always-on",
        ULTRON09,
        "Units are dropped at inference too: translations are made with random units missing.",
        "dropout",
        f"{IN_CHECKS}[dropout: dropout [post]]",
        [
            Patch(
                OPS,
                "        if rng is None or P_drop == 0:\n            return x, None\n",
                """\
        if P_drop == 0:
            return x, None
        rng = rng or DropoutKey(seed=0, step=0)
""",
            )
        ],
    ),
    Mutant(
        "dropout-not-scaled",
        CLASSIC,
        "The units that are kept are not scaled up: at inference every unit is larger than in training.",
        "dropout",
        f"{IN_CHECKS}[dropout: dropout [post]]",
        [Patch(OPS, "        dx *= keep_scale(P_drop)\n", "")],
    ),
    Mutant(
        "one-mask-for-all-sites",
        CLASSIC,
        "All layers draw with the same key, so the same units are dropped everywhere.",
        "dropout",
        f"{IN_CHECKS}[dropout: dropout 2 [post]]",
        [Patch(DROPOUT, "return self._replace(site=self.site * CHILDREN + index + 1)", "return self")],
    ),
    Mutant(
        "one-mask-for-all-steps",
        CLASSIC,
        "The mask does not depend on the step: dropout becomes a fixed, smaller network.",
        "dropout",
        f"{IN_CHECKS}[dropout: dropout 2 [post]]",
        [Patch(DROPOUT, "[0, self.step, self.shard, 0]", "[0, 0, self.shard, 0]")],
    ),
    Mutant(
        "one-dropout-object-for-two-sites",
        AKIRUSPROD,
        "The sublayers share one dropout object, which remembers its last mask only: backward uses that everywhere. "
        "Each layer alone is right; encoder and decoder of different lengths raise.",
        "AddNorm",
        f"{DIFFERENCES}[EncoderLayer: post-norm, dropout 0.3]",
        [
            Patch(
                LAYERS,
                """\
        return ops_of(x).add_norm(x, update, self.gamma.data, self.beta.data, self.eps, self.P_drop, rng)
""",
                """\
        y, (AddNorm.kept, saved) = ops_of(x).add_norm(
            x, update, self.gamma.data, self.beta.data, self.eps, self.P_drop, rng)
        return y, saved
""",
            ),
            Patch(LAYERS, "add_norm_backward(dy, cache,", "add_norm_backward(dy, (AddNorm.kept, cache),"),
        ],
    ),
    Mutant(
        "stale-dropout-mask",
        CSD81,
        "The layer stores its last mask, and a forward without dropout does not clear it: the next backward uses the "
        "mask of another call.",
        "PositionalEncoding",
        f"{IN_CHECKS}[PositionalEncoding: layer contract]",
        [
            Patch(
                LAYERS,
                "P_drop: float = 0.0) -> None:\n        self.P_drop = P_drop\n",
                "P_drop: float = 0.0) -> None:\n        self.P_drop = P_drop\n        self.kept = None\n",
            ),
            Patch(
                LAYERS,
                """\
        y, kept = ops_of(x).dropout(x + self.encoding(x, first), self.P_drop, rng)
        return y, (kept,)
""",
                """\
        y, kept = ops_of(x).dropout(x + self.encoding(x, first), self.P_drop, rng)
        if rng is not None:
            self.kept = kept
        return y, ()
""",
            ),
            Patch(
                LAYERS,
                """\
        (kept,) = cache
        # y = dropout(x + PE)
        return ops_of(dy).dropout_backward(dy, kept, self.P_drop)
""",
                """\
        return ops_of(dy).dropout_backward(dy, self.kept, self.P_drop)
""",
            ),
        ],
    ),
    # The loss ---------------------------------------------------------------------------------------------------------
    Mutant(
        "target-found-by-value",
        AKIRUSPROD,
        "The gradient finds the target's class by the value of its score: every class with an equal score is treated "
        "as the target.",
        "cross_entropy",
        f"{DIFFERENCES}[CrossEntropy: no smoothing, dropout 0.0]",
        [
            Patch(
                OPS,
                "dlogits[row, targets] -= on_target",
                "dlogits[dlogits == dlogits[row, targets][:, None]] -= on_target",
            )
        ],
    ),
    Mutant(
        "log-of-softmax",
        RZIGA,
        "The loss is the log of the softmax: infinite when a probability underflows.",
        "cross_entropy",
        f"{IN_CHECKS}[cross_entropy: loss 2]",
        [
            Patch(
                OPS,
                """\
        smoothed_score = on_target * dlogits[row, targets]
        if off_target:
            smoothed_score += off_target * dlogits.sum(axis=-1)
""",
                "",
            ),
            Patch(
                OPS,
                """\
        losses = xp.log(total[:, 0]) - smoothed_score
        p /= total
""",
                """\
        p /= total
        losses = -on_target * xp.log(p[row, targets])
        if off_target:
            losses -= off_target * xp.log(p).sum(axis=-1)
""",
            ),
        ],
    ),
    Mutant(
        "smoothing-not-in-the-gradient",
        CLASSIC,
        "The reported loss is smoothed, the gradient is not.",
        "cross_entropy",
        f"{DIFFERENCES}[CrossEntropy: smoothing spread over the others, dropout 0.0]",
        [
            Patch(
                OPS,
                """\
        dlogits -= off_target  # p - q, in place of p
        dlogits[row, targets] -= on_target
""",
                """\
        dlogits[row, targets] -= 1
""",
            )
        ],
    ),
    Mutant(
        "padding-is-a-target",
        CLASSIC,
        "Padding counts as a target in the loss: the model learns to write it.",
        "cross_entropy",
        f"{IN_CHECKS}[cross_entropy: loss]",
        [
            Patch(OPS, "        dlogits *= real[:, None]\n", ""),
            Patch(
                OPS,
                "return (losses * real).sum(dtype=xp.float64), dlogits",
                "return losses.sum(dtype=xp.float64), dlogits",
            ),
        ],
    ),
    Mutant(
        "loss-averaged-over-padding",
        AKIRUSPROD,
        "Padding adds zeros to the loss but counts in its mean: with half padding, half the loss.",
        "Transformer",
        f"{IN_CHECKS}[Transformer: padding and batch [post]]",
        [Patch(LOSS, "return loss_sum, len(rows), dstates", "return loss_sum, target_ids.size, dstates")],
    ),
    # The optimizer and the step ---------------------------------------------------------------------------------------
    Mutant(
        "second-moment-with-beta1",
        RZIGA,
        "The mean of the squares weights each new square by (1 - beta1) instead of (1 - beta2): every step is too "
        "small.",
        "Adam",
        f"{IN_CHECKS}[Adam: optimizer and schedule]",
        [Patch(OPS, "v_block += (1 - beta2) * (g * g)", "v_block += (1 - beta1) * (g * g)")],
    ),
    Mutant(
        "adam-never-counts",
        AKIRUSPROD,
        "Adam's t is a constant instead of the number of the step, so the bias correction never changes. In the "
        "original, t was the index of the layer.",
        "Adam",
        f"{IN_CHECKS}[Adam: optimizer and schedule]",
        [Patch(OPTIM, "self.t += 1", "self.t = 1")],
    ),
    Mutant(
        "adam-counts-arrays",
        CLASSIC,
        "Adam's t grows once for each parameter array instead of once a step: the first steps get hardly any bias "
        "correction.",
        "Adam",
        f"{IN_CHECKS}[Adam: optimizer and schedule]",
        [Patch(OPTIM, "self.t += 1", "self.t += len(self.store.parameters)")],
    ),
    Mutant(
        "warmup-the-wrong-way-round",
        CLASSIC,
        "max instead of min: the learning rate starts far too large, falls during warm-up, and rises ever after.",
        "noam",
        f"{IN_CHECKS}[noam: optimizer and schedule]",
        [Patch(OPTIM, "min(step**-0.5, step * warmup**-1.5)", "max(step**-0.5, step * warmup**-1.5)")],
    ),
    Mutant(
        "schedule-advanced-per-array",
        AKIRUSPROD,
        "The schedule's counter advances for each parameter array: the 4000 warm-up steps are over after 39.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [Patch(TRAINER, "noam(step, self.config", "noam(step * len(self.model.parameters()), self.config")],
    ),
    Mutant(
        "schedule-advanced-per-micro-batch",
        ANNOTATED,
        "The schedule's counter advances for each micro-batch, even when no step follows it.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [Patch(TRAINER, "noam(step, self.config", "noam(step * len(batches), self.config")],
    ),
    Mutant(
        "gradient-over-sentences",
        RZIGA,
        "The loss is a mean over tokens, its gradient over sentences: T times too large.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [Patch(TRAINER, "self.parallel.average_inplace(n_tokens)", "self.parallel.average_inplace(len(indices))")],
    ),
    Mutant(
        "gradient-not-divided",
        ANNOTATED,
        "The gradients of the micro-batches are added up and never divided. This is hard to notice, since Adam "
        "ignores a constant factor.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [Patch(TRAINER, "self.parallel.average_inplace(n_tokens)", "self.parallel.average_inplace(1)")],
    ),
    Mutant(
        "mean-of-means",
        CLASSIC,
        "Each micro-batch is divided by its own tokens and the means are averaged: a token in a small micro-batch "
        "counts more.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [
            Patch(
                DATA_PARALLEL,
                "                    loss_sum = loss_sum + loss\n",
                """\
                    loss_sum = loss_sum + loss
                    mean += model.store.grad / batches[shard].n_target_tokens / len(batches)
                    model.zero_grad()
""",
            ),
            Patch(
                DATA_PARALLEL,
                "model, loss_sum = self.replicas[replica], 0.0\n",
                """\
model, loss_sum = self.replicas[replica], 0.0
            mean = np.zeros_like(model.store.grad)
""",
            ),
            Patch(
                DATA_PARALLEL,
                "            return loss_sum\n",
                """\
            model.store.grad[...] = mean
            return loss_sum
""",
            ),
            Patch(TRAINER, "self.parallel.average_inplace(n_tokens)", "self.parallel.average_inplace(1)"),
        ],
    ),
    Mutant(
        "partial-accumulation-divided-in-full",
        CSD81,
        "A step with fewer micro-batches than usual is still divided by the usual number.",
        "Trainer.step",
        f"{IN_LOOP}a_step_of_fewer_micro_batches_is_divided_by_its_own_tokens",
        [
            Patch(
                TRAINER,
                "self.parallel.average_inplace(n_tokens)",
                "self.parallel.average_inplace(n_tokens * settings.accumulation / len(batches))",
            )
        ],
    ),
    Mutant(
        "ranks-all-compute-everything",
        CLASSIC,
        "Every process computes all micro-batches of the step: no work is shared, and the sum is N times too large.",
        "",
        f"{IN_RANKS}any_division_is_that_of_one_thread_to_rounding",
        [
            Patch(
                DATA_PARALLEL,
                "range(rank + n_ranks * replica, len(batches), n_ranks * n_replicas)",
                "range(replica, len(batches), n_replicas)",
            )
        ],
    ),
    Mutant(
        "ranks-divide-by-their-own-tokens",
        CLASSIC,
        "Each process divides by the tokens of its own micro-batches: the weights of the processes drift apart.",
        "",
        f"{IN_RANKS}any_division_is_that_of_one_thread_to_rounding",
        [
            Patch(
                DATA_PARALLEL,
                "sum(batch.n_target_tokens for batch in batches)",
                "sum(batches[shard].n_target_tokens for share in shares for shard in share)",
            )
        ],
    ),
    Mutant(
        "ranks-share-their-dropout",
        CLASSIC,
        "All processes draw the same masks: they have the same seed, and each counts only its own micro-batches.",
        "",
        f"{IN_RANKS}ranks_find_the_bits_that_threads_find",
        [
            Patch(
                DATA_PARALLEL,
                "DropoutKey(settings.seed, step, shard)",
                "DropoutKey(settings.seed, step, shard // n_ranks)",
            )
        ],
    ),
    Mutant(
        "bucket-sent-before-it-is-full",
        CLASSIC,
        "A bucket is sent when the first of its layers to finish is done, not the last: part of the gradient is "
        "never sent.",
        "",
        f"{IN_RANKS}what_is_sent_during_backward_does_not_change_any_more",
        [Patch(GRADIENT, "self.buckets[self.n_sent].start >= offset", "self.buckets[self.n_sent].stop > offset")],
    ),
    Mutant(
        "ranks-keep-their-loss",
        CLASSIC,
        "The log shows the loss of the first process's share as the loss of the step.",
        "",
        f"{IN_RANKS}ranks_find_the_bits_that_threads_find",
        [Patch(DATA_PARALLEL, "            self.between_devices.all_reduce_inplace(total)\n", "")],
    ),
    Mutant(
        "resumed-by-the-first-rank-alone",
        CLASSIC,
        "Only the first process reads the checkpoint; the others go on with fresh weights.",
        "",
        f"{IN_RANKS}a_rank_learns_from_the_first_one_where_the_run_stands",
        [Patch(SAVING, "            trainer.between_devices.broadcast_inplace(array)\n", "            pass\n")],
    ),
    Mutant(
        "validation-of-one-rank",
        CLASSIC,
        "The validation text is divided among the processes, and each takes the loss of its share for that of the "
        "whole text.",
        "",
        f"{IN_RANKS}validation_does_not_depend_on_the_number_of_ranks",
        [Patch(VALIDATION, "        ranks.all_reduce_inplace(row)\n", "        pass\n")],
    ),
    Mutant(
        "gradient-not-zeroed",
        CLASSIC,
        "The gradient of the last step is still there when the next begins.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [Patch(TRAINER, "            self.model.store.grad[...] = 0\n", "")],
    ),
    Mutant(
        "clipped-before-divided",
        CLASSIC,
        "The gradient is clipped before it is divided by the number of tokens: the limit depends on the size of the "
        "batch.",
        "Trainer.step",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        [
            Patch(
                TRAINER,
                """\
            grad_norm = self.parallel.average_inplace(n_tokens)
            if settings.clip_norm:
                clip_by_global_norm_inplace(self.model.store.grad, grad_norm, settings.clip_norm)
""",
                """\
            grad_norm = self.parallel.average_inplace(1)
            if settings.clip_norm:
                clip_by_global_norm_inplace(self.model.store.grad, grad_norm, settings.clip_norm)
            self.model.store.grad /= n_tokens
""",
            )
        ],
    ),
    Mutant(
        "training-without-dropout",
        CLASSIC,
        "Training does not pass the dropout key: nothing is ever dropped.",
        "Trainer.step",
        f"{IN_LOOP}every_micro_batch_of_every_step_draws_masks_of_its_own",
        [Patch(DATA_PARALLEL, "DropoutKey(settings.seed, step, shard)", "None")],
    ),
    Mutant(
        "one-mask-for-all-micro-batches",
        CLASSIC,
        "The micro-batches of a step draw the same masks.",
        "Trainer.step",
        f"{IN_LOOP}every_micro_batch_of_every_step_draws_masks_of_its_own",
        [Patch(DATA_PARALLEL, "DropoutKey(settings.seed, step, shard)", "DropoutKey(settings.seed, step)")],
    ),
    # Batches ----------------------------------------------------------------------------------------------------------
    Mutant(
        "target-not-shifted",
        CLASSIC,
        "The decoder reads the very token it is to predict: the loss falls to nothing, and translations are noise.",
        "batches",
        f"{IN_BATCHES}a_batch_written_out",
        [
            Patch(
                BATCHES, "np.where(target_out_ids[:, 1:] != PAD, target_out_ids[:, :-1], PAD)", "target_out_ids[:, 1:]"
            )
        ],
    ),
    Mutant(
        "no-end-symbol",
        CLASSIC,
        "Sentences are encoded without EOS: the model never learns to stop.",
        "batches",
        f"{IN_BATCHES}ids_are_stored_flat_with_eos",
        [Patch(BATCHES, "Sequences.of([*ids, EOS] for", "Sequences.of(list(ids) for")],
    ),
    Mutant(
        "same-order-every-epoch",
        CSD81,
        "Every epoch has the same batches in the same order.",
        "batches",
        f"{IN_BATCHES}the_order_depends_on_seed_and_epoch_alone",
        [Patch(BATCHES, "np.random.PCG64([self.seed, epoch])", "np.random.PCG64([self.seed])")],
    ),
    Mutant(
        "short-sentences-first",
        CSD81,
        "Every epoch runs from the short sentences to the long ones.",
        "batches",
        f"{IN_BATCHES}steps_come_in_no_order_of_length",
        [
            Patch(
                BATCHES,
                "return [bucket_by_bucket[i] for i in rng.permutation(len(bucket_by_bucket))]",
                "return bucket_by_bucket",
            )
        ],
    ),
    Mutant(
        "remainder-dropped",
        CLASSIC,
        "The last, smaller step of each bucket is left out: some pairs are not in the epoch.",
        "batches",
        f"{IN_BATCHES}every_pair_is_in_one_step_of_one_bucket_within_the_budget[1-1]",
        [
            Patch(
                BATCHES,
                "for i in range(0, len(members), pairs_per_step)]",
                "for i in range(0, len(members) - pairs_per_step + 1, pairs_per_step)]",
            )
        ],
    ),
    # Stopping and going on --------------------------------------------------------------------------------------------
    Mutant(
        "resume-updates-another-model",
        AKIRUSPROD,
        "After loading, the optimizer still holds the weights of the previous model: training goes on, and nothing "
        "changes.",
        "",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        [
            Patch(
                SAVING,
                "            checkpoints.copy_into(found.weights, store.named_views(store.data), path)\n",
                """\
            trainer.model = type(trainer.model)(trainer.config.model, trainer.config.training.seed)
            checkpoints.copy_into(found.weights, trainer.model.store.named_views(trainer.model.store.data), path)
""",
            )
        ],
    ),
    Mutant(
        "resume-forgets-the-moments",
        CLASSIC,
        "Adam's moments are saved and not read back.",
        "",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        [Patch(SAVING, "            checkpoints.copy_into(found.moments, moment_views(trainer), path)\n", "")],
    ),
    Mutant(
        "resume-restarts-adams-clock",
        CLASSIC,
        "Adam's t is 0 again after loading: the bias correction of the first steps comes a second time.",
        "",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        [Patch(SAVING, "    trainer.optimizer.t = trainer.progress.step\n", "")],
    ),
    Mutant(
        "resume-repeats-a-batch",
        CLASSIC,
        "The checkpoint names the last batch, not the next one.",
        "",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        [Patch(TRAINER, "index=index + 1,", "index=index,")],
    ),
    Mutant(
        "average-counts-the-last-twice",
        CLASSIC,
        "The sum starts with the last checkpoint, which is then added once more.",
        "",
        f"{IN_CHECKPOINTS}the_average_is_the_mean",
        [Patch(CHECKPOINTS, "for path in paths[:-1]:", "for path in paths:")],
    ),
    # Looking at the model ---------------------------------------------------------------------------------------------
    Mutant(
        "validation-loss-smoothed",
        CLASSIC,
        "The validation loss is label-smoothed, like that of training, so its exponential is not the perplexity.",
        "",
        f"{IN_LOOP}the_validation_loss_is_plain_and_independent_of_batching",
        [
            Patch(
                VALIDATION,
                "batch_loss(model, batch.inputs, batch.targets)",
                "batch_loss(model, batch.inputs, batch.targets, 0.1)",
            )
        ],
    ),
    Mutant(
        "bleu-over-special-symbols",
        CSD81,
        "BLEU compares '<s>the cat </s>' with 'the cat'.",
        "",
        f"{IN_LOOP}bleu_of_perfect_translations_is_100",
        [
            Patch(
                TRANSLATION,
                "corpus_scores(translations, target, language)",
                "corpus_scores([f'<s>{text} </s>' for text in translations], target, language)",
            )
        ],
    ),
    Mutant(
        "bleu-of-teacher-forced-guesses",
        HYUNWOONGKO,
        "BLEU is computed from the most likely next words while the decoder reads the reference: nothing was "
        "translated.",
        "",
        f"{IN_LOOP}bleu_of_perfect_translations_is_100",
        [
            Patch(
                TRANSLATION,
                """\
        scores = corpus_scores(translations, target, language)
""",
                """\
        from scratchformer.text.batches import batches_in_order

        guesses = {}
        for batch in batches_in_order(trainer.data.val, trainer.config.training.tokens_per_batch):
            logits, _ = trainer.model.forward(*batch.inputs)
            guesses.update(zip(batch.indices, trainer.tokenizer.decode(logits.argmax(axis=-1))))
        scores = corpus_scores([guesses[i] for i in range(len(guesses))], target, language)
""",
            )
        ],
    ),
    # The other layers of Table 1 --------------------------------------------------------------------------------------
    Mutant(
        "causal-convolution-centred",
        CLASSIC,
        "The window of a causal layer stays centred, so that each position reads those after it.",
        "Convolution",
        f"{IN_CHECKS}[Convolution: formulas]",
        [Patch(SEQUENCE_LAYERS, "back = span if causal else span // 2", "back = span // 2")],
    ),
    Mutant(
        "dilation-minus-one",
        CLASSIC,
        "What a dilated window reads is one position less apart than it should be; gradients are exact.",
        "Convolution",
        f"{IN_CHECKS}[Convolution: formulas]",
        [
            Patch(
                SEQUENCE_LAYERS,
                "place * dilation : place * dilation + T",
                "place * max(1, dilation - 1) : place * max(1, dilation - 1) + T",
            )
        ],
    ),
    Mutant(
        "convolution-reads-padding",
        CLASSIC,
        "The zeros after a sentence stand after its padding: the last words depend on how long other sentences are.",
        "Convolution",
        f"{IN_CHECKS}[Convolution: dependence on positions [post]]",
        [
            Patch(SEQUENCE_LAYERS, "= x if mask.key_lengths is None else x * not_padding(xp, T, mask)", "= x"),
            Patch(
                SEQUENCE_LAYERS,
                "return dx if mask.key_lengths is None else dx * not_padding(ops_of(dx).xp, T, mask)",
                "return dx",
            ),
        ],
    ),
    Mutant(
        "overlapping-windows-overwritten",
        CLASSIC,
        "Each window writes the gradient of what it reads over that of the window before it.",
        "Convolution",
        f"{DIFFERENCES}[Convolution: ragged padding, dropout 0.0]",
        [Patch(SEQUENCE_LAYERS, "dview += ops.matmul(", "dview[...] = ops.matmul(")],
    ),
    Mutant(
        "window-one-too-wide",
        CLASSIC,
        "Restricted attention reaches r + 1 positions instead of r; gradients are exact.",
        "RestrictedAttention",
        f"{IN_CHECKS}[RestrictedAttention: formulas]",
        [
            Patch(SEQUENCE_LAYERS, "padding_of(self.r, 1, causal)", "padding_of(self.r + 1, 1, causal)"),
            Patch(SEQUENCE_LAYERS, "padding_of(self.r, 1, mask.causal)", "padding_of(self.r + 1, 1, mask.causal)"),
        ],
    ),
    # A text encoder ---------------------------------------------------------------------------------------------------
    Mutant(
        "token-types-swapped",
        CLASSIC,
        "The first segment gets the vector of the second: exact gradients, and wrong with weights from elsewhere.",
        "TokenTypes",
        f"{IN_CHECKS}[TokenTypes: formulas]",
        [
            Patch(
                TEXT_ENCODER,
                "gather_rows(self.weight.data, token_types",
                "gather_rows(self.weight.data, 1 - token_types",
            ),
            Patch(TEXT_ENCODER, "is_of_type = token_types.reshape", "is_of_type = (1 - token_types).reshape"),
        ],
    ),
    Mutant(
        "class-from-the-last-position",
        CLASSIC,
        "The class is read from the last column instead of the first: padding, unless the text is the longest.",
        "TextEncoder",
        f"{IN_CHECKS}[TextEncoder: dependence on positions [post]]",
        [
            Patch(TEXT_ENCODER, "return states[:, :1], (states", "return states[:, -1:], (states"),
            Patch(TEXT_ENCODER, "dstates[:, :1] = dfirst", "dstates[:, -1:] = dfirst"),
        ],
    ),
    Mutant(
        "text-encoder-attends-to-padding",
        CLASSIC,
        "The lengths are forgotten, so that a text depends on how much padding its batch gives it.",
        "TextEncoder",
        f"{IN_CHECKS}[TextEncoder: dependence on positions [post]]",
        [Patch(TEXT_ENCODER, "return Mask(key_lengths=lengths_of(ids))", "return Mask()")],
    ),
    Mutant(
        "same-masks-in-every-epoch",
        CLASSIC,
        "What is hidden does not depend on the epoch: the model never learns from the other 85 % of the pieces.",
        "",
        f"{IN_MASKING}each_epoch_hides_other_pieces_and_a_repeated_one_the_same",
        [Patch(MASKING, "PCG64([self.seed, epoch, 1])", "PCG64([self.seed, 0, 1])")],
    ),
    Mutant(
        "special-tokens-hidden",
        CLASSIC,
        "The start and end symbols are chosen like pieces, and the model spends its capacity on what is always there.",
        "",
        f"{IN_MASKING}no_special_token_is_chosen_and_every_text_has_a_target",
        [
            Patch(
                MASKING,
                "pieces = np.flatnonzero(texts.ids > MASK)\n    pieces =",
                "pieces = np.flatnonzero(texts.ids > PAD)\n    pieces =",
            )
        ],
    ),
    # Images -----------------------------------------------------------------------------------------------------------
    Mutant(
        "patches-cut-without-transpose",
        CLASSIC,
        "(B, height, width) is reshaped into patches without exchanging the axes: each patch is a part of a pixel row.",
        "PatchEmbedding",
        f"{IN_CHECKS}[PatchEmbedding: formulas]",
        [
            Patch(VISION, "P, width // P, P).swapaxes(2, 3)", "width // P, P, P)"),
            Patch(VISION, "dpatches.reshape(shape).swapaxes(2, 3)", "dpatches"),
        ],
    ),
    Mutant(
        "class-token-behind",
        CLASSIC,
        "The class token is put behind the patches, so that the state of the first patch decides.",
        "ClassToken",
        f"{IN_CHECKS}[ClassToken: formulas]",
        [
            Patch(VISION, "y[:, 0], y[:, 1:] = self.weight.data, x", "y[:, -1], y[:, :-1] = self.weight.data, x"),
            Patch(VISION, "self.weight.grad += dy[:, 0].sum", "self.weight.grad += dy[:, -1].sum"),
            Patch(VISION, "return dy[:, 1:]", "return dy[:, :-1]"),
        ],
    ),
    Mutant(
        "class-token-learns-from-one-image",
        CLASSIC,
        "The gradient of the class token is that of the first image, not the sum over the batch.",
        "ClassToken",
        f"{DIFFERENCES}[ClassToken: a batch of sequences, dropout 0.0]",
        [Patch(VISION, "dy[:, 0].sum(axis=0, dtype=self.weight.grad.dtype)", "dy[0, 0]")],
    ),
    Mutant(
        "state-of-the-last-patch",
        CLASSIC,
        "The class is read from the last position instead of the first.",
        "VisionTransformer",
        f"{IN_CHECKS}[VisionTransformer: dependence on positions [post]]",
        [
            Patch(VISION, "return y[:, :1],", "return y[:, -1:],"),
            Patch(VISION, "dy[:, :1] = dstates", "dy[:, -1:] = dstates"),
        ],
    ),
    # The tokenizer ----------------------------------------------------------------------------------------------------
    Mutant(
        "tokenizer-trained-on-validation-text",
        NEUNET,
        "The vocabulary is also learned from the validation text.",
        "",
        f"{IN_LOOP}the_tokenizer_learns_from_the_training_text_alone",
        [
            Patch(
                TRANSLATION,
                "[*corpus.train.source, *corpus.train.target]",
                "[text for pairs in corpus if pairs for text in (*pairs.source, *pairs.target)]",
            )
        ],
    ),
    Mutant(
        "merges-not-by-rank",
        CSD81,
        "Pairs of pieces are merged from left to right instead of in the order they were learned: the pieces differ "
        "from those in training, though they spell the same text.",
        "",
        f"{IN_TOKENIZER}pairs_merge_in_the_order_they_were_learned",
        [
            Patch(
                TOKENIZER,
                "        return self._processor.encode(sentences)\n",
                """\
        return [self._merged_from_the_left(" ".join(sentence.split())) for sentence in sentences]

    def _merged_from_the_left(self, sentence: str) -> list[int]:
        to_id = self._processor.piece_to_id
        pieces, at = list("▁" + sentence.replace(" ", "▁") if sentence else ""), 0
        while at + 1 < len(pieces):
            if to_id(pieces[at] + pieces[at + 1]) != UNK:
                pieces[at:at + 2] = [pieces[at] + pieces[at + 1]]
            else:
                at += 1
        return [to_id(piece) for piece in pieces]
""",
            )
        ],
    ),
    # The next word ----------------------------------------------------------------------------------------------------
    Mutant(
        "next-word-leaks-the-tag-to-be-written",
        CLASSIC,
        "The tags are counted in the decoder's output, so that each position is told whether it writes a tag.",
        "NextWord",
        f"{IN_CHECKS}[NextWord: dependence on positions [post]]",
        [
            Patch(
                NEXT_WORD,
                "np.cumsum(self.is_tag(target_in_ids), axis=1)",
                "np.cumsum(self.is_tag(np.roll(target_in_ids, -1, axis=1)), axis=1)",
            )
        ],
    ),
    Mutant(
        "next-word-one-behind",
        CLASSIC,
        "A tag that has just been written is not counted: the decoder is told the word that has its tag already.",
        "NextWord",
        f"{IN_MODEL}the_next_word_is_the_first_without_a_tag",
        [
            Patch(
                NEXT_WORD,
                "np.cumsum(self.is_tag(target_in_ids), axis=1)",
                "np.cumsum(self.is_tag(target_in_ids), axis=1) - self.is_tag(target_in_ids)",
            )
        ],
    ),
    Mutant(
        "next-word-without-its-gradient",
        CLASSIC,
        "The encoder gets no gradient from the words that the decoder is told: it is as if they were constants.",
        "NextWord",
        f"{DIFFERENCES}[NextWord: ragged padding, more tags than words, dropout 0.0]",
        [Patch(NEXT_WORD, "rows.reshape(-1) + 1, 1.0, dwords)", "rows.reshape(-1) + 1, 0.0, dwords)")],
    ),
    Mutant(
        "next-word-beyond-the-source",
        CLASSIC,
        "With more tags than words the decoder is told a row of padding, or the first word of the next sentence.",
        "NextWord",
        f"{IN_MODEL}the_next_word_is_the_first_without_a_tag",
        [Patch(NEXT_WORD, "S - 1 if lengths is None else np.maximum(lengths, 1)[:, None] - 1", "S - 1")],
    ),
    # Decoding ---------------------------------------------------------------------------------------------------------
    Mutant(
        "past-not-extended",
        CLASSIC,
        "A decoding step attends only to itself and forgets the earlier ones: each word is chosen without the words "
        "before it.",
        "decoding step",
        f"{IN_CHECKS}[decoding step: decoding [post]]",
        [
            Patch(
                ATTENTION,
                "            k, v = kv_cache.extend(k, v)  # S positions\n",
                "            kv_cache.extend(k, v)\n",
            )
        ],
    ),
    Mutant(
        "every-step-at-position-zero",
        CLASSIC,
        "A decoding step sees one token and gives it position 0.",
        "decoding step",
        f"{IN_CHECKS}[decoding step: decoding [post]]",
        [Patch(INCREMENTAL, "x.shape[-1]), state.position)", "x.shape[-1]))")],
    ),
    Mutant(
        "generated-tokens-at-position-zero",
        CLASSIC,
        "A language model that continues a text gives each new token position 0.",
        "decoding step",
        f"{IN_GENERATION}the_cache_gives_the_logits_of_forward[sinusoidal]",
        [Patch(INCREMENTAL, "model.positions.forward(x, kv_caches[0].t)", "model.positions.forward(x)")],
    ),
    Mutant(
        "nucleus-without-its-last-token",
        CLASSIC,
        "The likeliest tokens that top_p leaves have together less than this probability, not at least as much.",
        "",
        f"{IN_GENERATION}the_distribution_is_the_one_asked_for",
        [
            Patch(
                GENERATION,
                "ranked[of_likelier >= top_p] = 0",
                "ranked[:, 1:][(of_likelier + ranked)[:, 1:] > top_p] = 0",
            )
        ],
    ),
    Mutant(
        "overlap-of-windows-counted-twice",
        CLASSIC,
        "What two windows of the validation text share is predicted, and counted, in both.",
        "",
        f"{IN_WINDOWS}validation_predicts_each_token_once_from_half_a_window_or_more[4]",
        [Patch(WINDOWS, "columns >= self.n_done[indices, None]", "columns >= 0 * self.n_done[indices, None]")],
    ),
    Mutant(
        "masks-of-finished-sentences-stay",
        CLASSIC,
        "When a sentence is finished, its row leaves the cache but its length stays: the other sentences get each "
        "other's masks.",
        "decoding step",
        f"{IN_CHECKS}[decoding step: decoding [post]]",
        [
            Patch(
                INCREMENTAL, "self.memory_mask.key_lengths[sentences]", "self.memory_mask.key_lengths[:len(sentences)]"
            )
        ],
    ),
    Mutant(
        "past-not-reordered",
        CLASSIC,
        "The beam chooses new parents, but the cached keys and values stay with the old ones.",
        "",
        f"{IN_SEARCH}cached_scores_are_those_of_the_full_decoder[5-post-sinusoidal-all0]",
        [Patch(SEARCH, "(kept[:, None] * W + parents[kept])", "(kept[:, None] * W + np.arange(alive.shape[1]) % W)")],
    ),
    Mutant(
        "score-without-penalty",
        CLASSIC,
        "Hypotheses are ranked by log probability alone: short ones win.",
        "",
        f"{IN_SEARCH}a_length_penalty_prefers_longer_translations",
        [Patch(SEARCH, "score = log_probability / length_penalty(len(ids), alpha)", "score = log_probability")],
    ),
    Mutant(
        "score-over-power-of-length",
        CSD81,
        "The penalty is n^alpha instead of ((5 + n) / 6)^alpha.",
        "",
        f"{IN_SEARCH}the_length_penalty_of_the_paper",
        [Patch(SEARCH, "return ((5 + n_tokens) / 6) ** alpha", "return n_tokens ** alpha")],
    ),
    Mutant(
        "penalty-forgets-the-end",
        CLASSIC,
        "The log probability includes EOS, the length does not.",
        "",
        f"{IN_SEARCH}cached_scores_are_those_of_the_full_decoder[1-post-sinusoidal-all0]",
        [Patch(SEARCH, "length_penalty(len(ids), alpha)", "length_penalty(len(ids) - (EOS in ids), alpha)")],
    ),
    Mutant(
        "finished-hypotheses-take-places",
        CSD81,
        "Finished hypotheses keep their place in the beam, which gets narrower as translations are found.",
        "",
        f"{IN_SEARCH}a_small_beam_is_that_of_the_textbook[2-1-post-sinusoidal-all0-free]",
        [
            Patch(SEARCH, "(logits, alive, 2 * beam, allowed)", "(logits, alive, beam, allowed)"),
            Patch(SEARCH, "min(beam, best.shape[1] - W)", "beam"),
            Patch(
                SEARCH,
                "        ids = np.concatenate([np.take_along_axis(ids,",
                """\
        alive = np.where(tokens == EOS, -np.inf, alive)
        ids = np.concatenate([np.take_along_axis(ids,""",
            ),
        ],
    ),
    Mutant(
        "beam-stops-too-early",
        CLASSIC,
        "The search ends when no live hypothesis beats the finished ones at its present length, though it still "
        "could when longer.",
        "",
        f"{IN_SEARCH}a_small_beam_is_that_of_the_textbook[2-1-pre-sinusoidal-all0-free]",
        [
            Patch(
                SEARCH,
                "length_penalty(longest[active], alpha)\n        at_end",
                "length_penalty(state.position, alpha)\n        at_end",
            )
        ],
    ),
    Mutant(
        "beam-of-equals",
        CLASSIC,
        "All hypotheses begin with the same score, so the beam fills with copies of the best one.",
        "",
        f"{IN_SEARCH}nbest_is_sorted_and_without_doubles[post-sinusoidal-all0]",
        [
            Patch(SEARCH, "ids = np.full((len(active), 1, 1), BOS)", "ids = np.full((len(active), beam, 1), BOS)"),
            Patch(SEARCH, "alive = np.zeros((len(active), 1))", "alive = np.zeros((len(active), beam))"),
        ],
    ),
    Mutant(
        "logits-as-log-probabilities",
        CLASSIC,
        "The beam adds up logits without normalising them: the most likely word costs nothing, however unlikely it is.",
        "",
        f"{IN_SEARCH}cached_scores_are_those_of_the_full_decoder[2-post-sinusoidal-all0]",
        [Patch(SEARCH, "xp.asarray(alive) - ops.log_sum_exp(logits)", "xp.asarray(alive)")],
    ),
    Mutant(
        "padding-may-be-written",
        CLASSIC,
        "A search may choose PAD as the next word.",
        "",
        f"{IN_SEARCH}padding_and_start_symbol_are_never_written[1]",
        [Patch(SEARCH, "for id_ in (PAD, BOS):", "for id_ in (BOS,):")],
    ),
    Mutant(
        "greatest-length-of-the-batch",
        CLASSIC,
        "The length limit of a translation depends on the longest sentence of its batch.",
        "",
        f"{IN_SEARCH}no_translation_is_longer_than_allowed[changes0-20-1]",
        [
            Patch(
                SEARCH,
                "longest = lengths_of(source_ids) + extra_length",
                "longest = np.full(len(source_ids), source_ids.shape[1] + extra_length)",
            )
        ],
    ),
    Mutant(
        "translations-in-order-of-length",
        CLASSIC,
        "Sentences are sorted by length for speed, and their translations are not put back in order.",
        "",
        f"{IN_TRANSLATOR}translations_come_in_the_order_of_the_sentences",
        [
            Patch(
                TRANSLATOR,
                "for index, hypotheses in zip(indices, found):",
                "for index, hypotheses in zip(sorted(indices), found):",
            )
        ],
    ),
    # The checks themselves --------------------------------------------------------------------------------------------
    Mutant(
        "check-draws-as-its-callers",
        CLASSIC,
        "The gradient check draws the gradient of the output from `default_rng(seed)`, as callers draw x: it is "
        "parallel to x, along which the gradient of a LayerNorm is zero.",
        "",
        f"{IN_GRADCHECK}zeros_as_the_gradient_of_a_norm_are_refused_wherever_x_comes_from[0]",
        [
            Patch(
                GRADCHECK,
                "lambda shape: np.asarray(np.random.default_rng(*streams.spawn(1)).standard_normal(shape))",
                "lambda shape: np.asarray(np.random.default_rng(seed).standard_normal(shape))",
            )
        ],
    ),
    Mutant(
        "check-accepts-a-parallel-gradient",
        CLASSIC,
        "The gradient check goes on if its gradient of the output is parallel to an input.",
        "",
        f"{IN_GRADCHECK}a_gradient_parallel_to_an_input_is_refused",
        [Patch(GRADCHECK, "    require_not_parallel(upstream, arguments)\n", "")],
    ),
    Mutant(
        "check-begins-at-zero",
        CLASSIC,
        "The gradient check begins with gradients of zero, so that it does not notice `.grad[...] = g`.",
        "",
        f"{IN_GRADCHECK}a_gradient_that_is_right_for_one_first_call_only_is_refused[Overwrites-refused0]",
        [Patch(GRADCHECK, "start = {name: draw(grad.shape) for", "start = {name: 0 * draw(grad.shape) for")],
    ),
    Mutant(
        "check-accepts-a-replaced-gradient",
        CLASSIC,
        "The gradient check reads a gradient that backward has put in place of the one that the optimizer reads.",
        "",
        f"{IN_GRADCHECK}a_layer_that_breaks_its_contract_is_refused",
        [Patch(GRADCHECK, "if parameter.grad is not grads[name]:", "if False:")],
    ),
    Mutant(
        "check-ignores-changed-arguments",
        CLASSIC,
        "The gradient check does not notice that backward changes dy, an input or its cache.",
        "",
        f"{IN_GRADCHECK}a_layer_that_breaks_its_contract_is_refused[ChangesDy-backward changes dy]",
        [
            Patch(
                GRADCHECK,
                "if not np.array_equal(array, copy, equal_nan",
                "if False and np.array_equal(array, copy, equal_nan",
            )
        ],
    ),
    Mutant(
        "check-of-a-single-call",
        CLASSIC,
        "The gradient check makes one call alone, so that a layer may remember its last call.",
        "",
        f"{IN_GRADCHECK}a_gradient_that_is_right_for_one_first_call_only_is_refused[RemembersItsLastCall-refused1]",
        [
            Patch(
                GRADCHECK,
                "    other_y, other_cache = layer.forward(*(map_arrays(reordered, value) for value in inputs), "
                "rng=other_key)\n    layer.backward(draw(other_y.shape), other_cache)\n",
                "",
            )
        ],
    ),
    Mutant(
        "layers-in-dicts-are-overlooked",
        CLASSIC,
        "The parameters of layers in a dict are neither checked nor trained.",
        "",
        f"{IN_PARAMETERS}layers_in_dicts_and_tuples_are_found_and_checked",
        [Patch(PARAMETER, "        items = value.items()\n", "        return\n")],
    ),
    Mutant(
        "layers-in-tuples-are-overlooked",
        CLASSIC,
        "The parameters of layers in a tuple are neither checked nor trained.",
        "",
        f"{IN_PARAMETERS}layers_in_dicts_and_tuples_are_found_and_checked",
        [Patch(PARAMETER, "isinstance(value, (list, tuple))", "isinstance(value, list)")],
    ),
    Mutant(
        "hidden-parameters-are-overlooked",
        CLASSIC,
        "A layer in a set, a closure or another object is neither checked nor trained, and nothing is said.",
        "",
        f"{IN_PARAMETERS}a_layer_that_would_not_be_found_is_refused_by_name",
        [Patch(PARAMETER, "if any(id(parameter) not in found for parameter in parameters_behind(item)):", "if False:")],
    ),
    Mutant(
        "two-parameters-of-one-name",
        CLASSIC,
        "Of two parameters with one name, one is neither checked nor trained.",
        "",
        f"{IN_PARAMETERS}two_parameters_of_one_name_are_refused",
        [
            Patch(
                PARAMETER,
                "if named.setdefault(name, parameter) is not parameter:",
                "if not named.setdefault(name, parameter):",
            )
        ],
    ),
    Mutant(
        "check-with-new-weights",
        CLASSIC,
        "The gradient check leaves gamma at 1 and a gate at 0, where some wrong gradients are right.",
        "",
        f"{IN_GRADCHECK}faults_that_new_weights_hide_are_refused",
        [Patch(GRADCHECK, "                array += 0.5 * draw(array.shape)\n", "                pass\n")],
    ),
    Mutant(
        "optimizer-of-an-old-store",
        CLASSIC,
        "After the store of a model is rebuilt, the old optimizer trains weights that the model no longer reads.",
        "",
        f"{IN_PARAMETERS}an_optimizer_of_the_old_store_is_refused",
        [
            Patch(
                OPTIM,
                "        self.store.require(self.store.parameters)\n        self.t += 1\n",
                "        self.t += 1\n",
            )
        ],
    ),
    Mutant(
        "adam-trains-the-layers-of-yesterday",
        CLASSIC,
        "Adam takes a model with a layer that its store does not hold, and never changes that layer.",
        "",
        f"{IN_PARAMETERS}a_layer_put_into_a_finished_model_is_refused_until_the_store_is_rebuilt",
        [
            Patch(
                OPTIM,
                "require(store.parameters() if isinstance(store, Layer) else self.store.parameters)",
                "require(self.store.parameters)",
            )
        ],
    ),
    Mutant(
        "zero-grad-of-the-layers-of-yesterday",
        CLASSIC,
        "`zero_grad` leaves the gradient of a layer that the model's store does not hold.",
        "",
        f"{IN_PARAMETERS}a_layer_put_into_a_finished_model_is_refused_until_the_store_is_rebuilt",
        [Patch(MODEL, "        self.store.require(self.parameters())\n", "")],
    ),
    Mutant(
        "weights-in-other-code",
        CLASSIC,
        "Weights that were trained with a patched activation are loaded without a word and translate nonsense.",
        "",
        f"{IN_RESUME}weights_trained_in_other_code_are_told",
        [Patch(MODEL_CODE, "if found.get(name) != now.get(name)", "if found.keys() != now.keys()")],
    ),
]
