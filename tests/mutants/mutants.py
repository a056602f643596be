"""The mutants: bugs found in public Transformers, and classic ones, as small patches of our own code.

One is planted at a time, in memory (`plant.py`), and the test that it names must fail (`test_mutants.py`). `matrix.py`
finds out which other suites catch it.

A bug in forward mostly comes with its own correct gradient, as automatic differentiation would give it. Finite
differences cannot see such a bug, so other tests must.
"""

import re
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
    what       what is wrong, in a sentence or two
    caught_by  the test that must fail: path::name, with the id of its parameters if one suffices
    patches    the change itself
    suspect    the broken component, which `scratchformer doctor` should name: a class or function with its operations
               in `nn/ops.py`; "" if the bug is not in the model (but in a tokenizer or a score, say)
    origin     the public implementation it was found in, as owner/repository, or CLASSIC for a common mistake
    """

    name: str
    what: str
    caught_by: str
    patches: list[Patch]
    suspect: str
    origin: str


def mutant(
    name: str, what: str, caught_by: str, *changes: tuple[str, str, str], suspect: str = "", origin: str = "classic"
) -> Mutant:
    """A mutant whose changes are (file, before, after). If no suspect is given, the test's id may name it."""
    named = re.search(r"\[([\w. ]+): ", caught_by)
    patches = [Patch(*change) for change in changes]
    return Mutant(name, what, caught_by, patches, suspect or (named[1] if named else ""), origin)


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
LLAMA = "scratchformer/nn/llama.py"
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
IN_LLAMA = "tests/nn/test_block_of_2026.py::test_"
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
    mutant(
        "softmax-divided-by-batch",
        "The backward of softmax divides by the batch size, as if it were the loss: right for a batch of one.",
        f"{DIFFERENCES}[ScaledDotProductAttention: ragged padding, dropout 0.0]",
        (OPS, "        dscores *= scale\n", "        dscores *= scale / len(dscores)\n"),
        origin=AKIRUSPROD,
    ),
    mutant(
        "softmax-over-queries",
        "Softmax runs over the queries instead of the keys: the weights of a query need not sum to one.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (OPS, "highest = scores.max(axis=-1,", "highest = scores.max(axis=-2,"),
        (OPS, "total = weights.sum(axis=-1,", "total = weights.sum(axis=-2,"),
        (
            OPS,
            'dweights - self.xp.einsum("...s,...s->...", dweights, weights)[..., None]',
            "dweights - (dweights * weights).sum(axis=-2, keepdims=True)",
        ),
    ),
    mutant(
        "scores-not-scaled",
        "1 / sqrt(d_k) is missing, in forward and in backward: the right gradient of another function.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (ATTENTION, "scale = 1 / math.sqrt(q.shape[-1])", "scale = 1.0"),
    ),
    mutant(
        "scores-scaled-by-d-model",
        "The scores are divided by sqrt(d_model) instead of sqrt(d_k): right for a single head.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (ATTENTION, "scale = 1 / math.sqrt(q.shape[-1])", "scale = 1 / math.sqrt(q.shape[-2] * q.shape[-1])"),
        origin=NEUNET,
    ),
    mutant(
        "heads-split-without-transpose",
        "(B, T, H, K) is reshaped into (B, H, T, K) where the axes should be swapped: heads mix positions.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (OPS, "    return x.swapaxes(1, 2)\n", "    B, T, H, K = x.shape\n    return x.reshape(B, H, T, K)\n"),
    ),
    mutant(
        "dv-from-weights-before-dropout",
        "The gradient of the values uses the weights before dropout: right as long as nothing is dropped.",
        f"{DIFFERENCES}[ScaledDotProductAttention: causal, dropout 0.3]",
        (
            OPS,
            "self.matmul(transposed(dropped), by_head(dy), out=by_head(dv))",
            "self.matmul(transposed(weights), by_head(dy), out=by_head(dv))",
        ),
        origin=ULTRON09,
    ),
    mutant(
        "dq-and-dk-swapped",
        "The gradients of queries and keys go back in the wrong order: all shapes fit.",
        f"{DIFFERENCES}[SelfAttention: ragged padding, dropout 0.0]",
        (ATTENTION, "join_heads(dq, dk, dv)", "join_heads(dk, dq, dv)"),
    ),
    mutant(
        "cross-attention-mixes-its-inputs",
        "Cross-attention takes queries and keys from the encoder and values from the decoder, so each position sees "
        "later ones. Where T = S every gradient is right; T != S raises, as it did there.",
        f"{IN_CHECKS}[CrossAttention: formulas]",
        (ATTENTION, "projected, q_cache = self.q.forward(x)", "projected, q_cache = self.q.forward(memory)"),
        (
            ATTENTION,
            """\
            k, v, memory_cache = self.keys_and_values(memory)
""",
            """\
            k, _, memory_cache = self.keys_and_values(memory)
            _, v, x_cache = self.keys_and_values(x)
""",
        ),
        (ATTENTION, "return y, (q_cache, memory_cache,", "return y, (q_cache, (memory_cache, x_cache),"),
        (
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
        origin=RZIGA,
    ),
    mutant(
        "head-importance-of-the-mean-gradient",
        "The absolute value is taken of the mean gradient: a head that helps some sentences and harms others is worth "
        "nothing.",
        "tests/experiments/test_head_report.py::test_the_absolute_value_is_taken_of_each_sentence",
        (
            HEAD_REPORT,
            "np.abs(gate_gradients(translator, text)).sum(axis=0)",
            "np.abs(gate_gradients(translator, text).sum(axis=0))",
        ),
    ),
    mutant(
        "gate-passed-by-in-backward",
        "Attention gets the gradient of what comes out of the gates, not of what goes in: right while all are open.",
        f"{DIFFERENCES}[GatedAttention: ragged padding, dropout 0.0]",
        (HEAD_GATE, "self.attention.backward(dheads, attention_cache)", "self.attention.backward(dy, attention_cache)"),
    ),
    # Masks ------------------------------------------------------------------------------------------------------------
    mutant(
        "no-causal-mask",
        "The decoder is trained without a causal mask and reads its answer.",
        f"{IN_CHECKS}[Transformer: dependence on positions [post]]",
        (
            TRANSFORMER,
            "x, memory, Mask(causal=True), memory_mask, rng=rng and rng.child(3)",
            "x, memory, Mask(), memory_mask, rng=rng and rng.child(3)",
        ),
        origin=YVSEMLANI,
    ),
    mutant(
        "causal-mask-one-too-far",
        "The causal mask lets each position see the next one, which is the word it must predict.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (OPS, "key <= xp.arange(S - T, S)[:, None]", "key <= 1 + xp.arange(S - T, S)[:, None]"),
    ),
    mutant(
        "mask-after-softmax",
        "The weights are masked after the softmax: what is masked keeps its share of the sum.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (
            OPS,
            """\
        if key_lengths is not None or causal:
            T, S = scores.shape[-2:]
            scores += xp.where(allowed(xp, T, S, key_lengths, causal), 0, -math.inf).astype(scores.dtype)
""",
            "",
        ),
        (
            OPS,
            """\
        weights /= xp.where(total == 0, 1, total)
""",
            """\
        weights /= total
        weights *= allowed(xp, *weights.shape[-2:], key_lengths, causal)
""",
        ),
    ),
    mutant(
        "nothing-to-attend-to-gives-nan",
        "A query whose keys are all masked divides zero by zero, and the NaN spreads through the batch's gradient.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (OPS, "scores -= xp.where(highest == -math.inf, 0, highest)", "scores -= highest"),
        (OPS, "weights /= xp.where(total == 0, 1, total)", "weights /= total"),
        origin=AKIRUSPROD,
    ),
    mutant(
        "padding-mask-on-queries",
        "The padding mask blanks rows of the score matrix instead of columns: padding is read like text.",
        f"{IN_CHECKS}[ScaledDotProductAttention: formulas]",
        (
            OPS,
            "(key < key_lengths[:, None])[:, None, None, :]",
            "(xp.arange(T) < key_lengths[:, None])[:, None, :, None]",
        ),
        origin=HYUNWOONGKO,
    ),
    mutant(
        "mask-inverted",
        "The mask says where padding is, but attention takes it for where words are: a source without padding is "
        "never read.",
        f"{IN_CHECKS}[Transformer: dependence on positions [post]]",
        (
            TRANSFORMER,
            "Mask(key_lengths=lengths_of(source_ids))",
            "Mask(key_lengths=source_ids.shape[1] - lengths_of(source_ids))",
        ),
    ),
    mutant(
        "padding-seen-by-cross-attention",
        "The encoder gets the source mask, cross-attention does not, so it attends to padding.",
        f"{IN_CHECKS}[Transformer: padding and batch [post]]",
        (
            TRANSFORMER,
            "x, memory, Mask(causal=True), memory_mask, rng=rng and rng.child(3)",
            "x, memory, Mask(causal=True), Mask(), rng=rng and rng.child(3)",
        ),
    ),
    mutant(
        "cross-attention-is-causal",
        "Cross-attention gets the decoder's own mask: it sees padding, and does not see the end of the source.",
        f"{IN_CHECKS}[DecoderLayer: formulas]",
        (TRANSFORMER, "x, memory, memory_mask, of_memory, rng", "x, memory, mask, of_memory, rng"),
    ),
    mutant(
        "encoder-is-causal",
        "The encoder looks only back, like a decoder.",
        f"{IN_CHECKS}[EncoderLayer: formulas]",
        (
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
        ),
    ),
    # Embeddings and positions -----------------------------------------------------------------------------------------
    mutant(
        "repeated-words-overwrite",
        "`dE[ids] += dx` adds only once for a word that occurs twice, because NumPy buffers the sum.",
        f"{DIFFERENCES}[Embedding: repeated words and padding, dropout 0.0]",
        (OPS, "self.xp.add.at(dE, ids[real], dx[real] * scale)", "dE[ids[real]] += dx[real] * scale"),
    ),
    mutant(
        "embedding-gradient-not-scaled",
        "sqrt(d_model) multiplies the embedding in forward but not its gradient; with a tied matrix only one of the "
        "two contributions is wrong.",
        f"{DIFFERENCES}[Embedding: repeated words and padding, dropout 0.0]",
        (OPS, "self.xp.add.at(dE, ids[real], dx[real] * scale)", "self.xp.add.at(dE, ids[real], dx[real])"),
        origin=CSD81,
    ),
    mutant(
        "embedding-not-scaled",
        "sqrt(d_model) is missing in forward and backward: the positions drown the words.",
        f"{IN_CHECKS}[Embedding: formulas]",
        (LAYERS, "self.scale = math.sqrt(weight.shape[1])", "self.scale = 1.0"),
    ),
    mutant(
        "embedding-too-large-at-first",
        "The embedding is drawn from N(0, 1), as frameworks do by default: with a tied output the first loss is far "
        "above ln V.",
        f"{IN_CHECKS}[Embedding: initial sizes]",
        (LAYERS, "init.normal(0, d_model**-0.5, (vocab_size, d_model))", "init.normal(0, 1, (vocab_size, d_model))"),
    ),
    mutant(
        "tied-gradient-dropped",
        "The output layer's contribution to the gradient of the tied matrix is dropped.",
        f"{DIFFERENCES}[Unembedding: a batch of sequences, dropout 0.0]",
        (LAYERS, "        ops.add_product_inplace(self.weight.grad, rows.T, rows_of(y))\n", ""),
        origin=ULTRON09,
    ),
    mutant(
        "gradient-cut-loose",
        "`grad = grad + g` makes a new array: the gradient is right, but the optimizer does not see it.",
        f"{DIFFERENCES}[Unembedding: a batch of sequences, dropout 0.0]",
        (LAYERS, "ops.add_product_inplace(self.weight.grad, ", "self.weight.grad = self.weight.grad + ops.matmul("),
    ),
    mutant(
        "tied-only-at-first",
        "The output matrix is a copy of the embedding and differs from it after the first step (in the original, "
        "after loading).",
        f"{IN_CHECKS}[Transformer: structure [post]]",
        (TRANSFORMER, "output = target if", "output = Parameter(target.data.copy()) if"),
        origin=ULTRON09,
    ),
    mutant(
        "positions-of-base-100000",
        "The wavelengths of the positional encoding grow to 100000 instead of 10000.",
        f"{IN_MODEL}positions_have_known_values",
        (LAYERS, "position / 10000 **", "position / 100000 **"),
        suspect="PositionalEncoding",
        origin=RZIGA,
    ),
    mutant(
        "positions-without-pairs",
        "The exponent is 2i / d_model over all channels i, not over pairs: sine and cosine differ in frequency, and "
        "half the channels hardly move.",
        f"{IN_MODEL}positions_have_known_values",
        (LAYERS, "(2 * (channel // 2) / d_model)", "(2 * channel / d_model)"),
        suspect="PositionalEncoding",
        origin=YVSEMLANI,
    ),
    mutant(
        "positions-in-float64",
        "The table of positions is float64, so everything computed after it is float64: twice the memory, and no "
        "error message.",
        f"{IN_CHECKS}[PositionalEncoding: layer contract]",
        (LAYERS, "sinusoids(0, rows, x.shape[2]).astype(x.dtype)", "sinusoids(0, rows, x.shape[2])"),
    ),
    mutant(
        "learned-positions-gradient-at-zero",
        "The gradient of learned positions goes to the first rows, wherever the sequence begins.",
        f"{DIFFERENCES}[LearnedPositions: the last position, B = 1, dropout 0.0]",
        (LAYERS, "self.weight.grad[first : first + dx.shape[1]] +=", "self.weight.grad[: dx.shape[1]] +="),
    ),
    # Linear, feed-forward, normalisation, residuals -------------------------------------------------------------------
    mutant(
        "bias-gradient-averaged",
        "The gradient of the bias is the mean over the batch instead of the sum.",
        f"{DIFFERENCES}[Linear: a batch of sequences, dropout 0.0]",
        (OPS, "total += rows.sum(axis=0)", "total += rows.mean(axis=0)"),
    ),
    mutant(
        "gradient-overwritten",
        "`grad = ` instead of `grad +=`: only the last micro-batch counts.",
        f"{DIFFERENCES}[Linear: a batch of sequences, dropout 0.0]",
        (OPS, "self.add_product_inplace(dW, x_rows.T, dy_rows)", "dW[...] = self.matmul(x_rows.T, dy_rows)"),
    ),
    mutant(
        "relu-backward-in-place",
        "The backward of ReLU writes into the gradient it is given: harmless until someone else needs that array.",
        f"{IN_CHECKS}[FeedForward: layer contract 3]",
        (OPS, "        return dy * (y > 0)\n", "        dy *= y > 0\n        return dy\n"),
    ),
    mutant(
        "relu-dropout-not-undone",
        "The hidden units are dropped in forward and not in backward: right as long as relu_dropout is 0.",
        f"{DIFFERENCES}[FeedForward: a batch of sequences, dropout 0.3]",
        (LAYERS, "dactive = ops.dropout_backward(ddropped, kept, self.relu_dropout)", "dactive = ddropped"),
    ),
    mutant(
        "gelu-slope-of-the-cube",
        "The slope of 0.044715 x^3 in the backward of GELU lacks its factor 3: right near x = 0.",
        f"{DIFFERENCES}[FeedForward: GELU, dropout 0.0]",
        (OPS, "(1 + 3 * GELU_CUBIC * x * x)", "(1 + GELU_CUBIC * x * x)"),
    ),
    mutant(
        "gamma-outside-the-means",
        "The backward of LayerNorm multiplies by gamma after the two means, not before: right while gamma is 1.",
        f"{DIFFERENCES}[LayerNorm: far from mean 0, dropout 0.0]",
        (OPS, "dnormalized = dy * gamma", "dnormalized = dy"),
        (OPS, "        dx *= inverse_std\n", "        dx *= inverse_std * gamma\n"),
        origin=AKIRUSPROD,
    ),
    mutant(
        "unbiased-variance",
        "LayerNorm divides by the unbiased variance (D - 1), as a framework's `std` does.",
        f"{IN_CHECKS}[LayerNorm: formulas]",
        (OPS, "[..., None] / x.shape[-1]", "[..., None] / (x.shape[-1] - 1)"),
        (OPS, "[..., None] / dy.shape[-1]", "[..., None] / (dy.shape[-1] - 1)"),
        origin=ANNOTATED,
    ),
    mutant(
        "eps-outside-the-root",
        "LayerNorm divides by sqrt(variance) + eps instead of sqrt(variance + eps).",
        f"{IN_CHECKS}[LayerNorm: formulas]",
        (OPS, "1 / self.xp.sqrt(variance + eps)", "1 / (self.xp.sqrt(variance) + eps)"),
        (OPS, "return y, (normalized, inverse_std)", "return y, (normalized, inverse_std, 1 - eps * inverse_std)"),
        (OPS, "normalized, inverse_std = saved", "normalized, inverse_std, root_over_divisor = saved"),
        (OPS, "dx -= normalized * along_itself", "dx -= normalized * along_itself / root_over_divisor"),
        origin=ANNOTATED,
    ),
    mutant(
        "layer-norm-without-eps",
        "LayerNorm of a constant row divides zero by zero.",
        f"{IN_CHECKS}[LayerNorm: formulas]",
        (OPS, "self.xp.sqrt(variance + eps)", "self.xp.sqrt(variance)"),
        origin=RZIGA,
    ),
    mutant(
        "residual-gradient-dropped",
        "The gradient through the residual connection is forgotten: the lower layers hardly learn.",
        f"{DIFFERENCES}[PostNorm: around feed-forward, dropout 0.0]",
        (RESIDUAL, "dx = dx + dx_through", "dx = dx_through"),
    ),
    mutant(
        "residual-added-in-place",
        "`x += update` saves an array and overwrites the x that the sublayer kept for its backward.",
        f"{DIFFERENCES}[PostNorm: around feed-forward, dropout 0.0]",
        (
            OPS,
            "        y, saved = self.layer_norm(x + dropped, gamma, beta, eps)\n",
            """\
        x += dropped
        y, saved = self.layer_norm(x, gamma, beta, eps)
""",
        ),
        suspect="AddNorm",
    ),
    mutant(
        "pre-norm-around-the-normalised",
        "With pre-norm, the residual connection starts after the LayerNorm: no signal passes through unchanged.",
        f"{IN_CHECKS}[PreNorm: formulas]",
        (RESIDUAL, "return x + dropped, (norm_cache", "return n + dropped, (norm_cache"),
        (RESIDUAL, "dx = dy + self.norm.backward(dn, norm_cache)", "dx = self.norm.backward(dy + dn, norm_cache)"),
    ),
    # Stacks -----------------------------------------------------------------------------------------------------------
    mutant(
        "memory-gradient-of-one-layer",
        "The encoder gets its gradient from one decoder layer only: the gradients of the others are overwritten.",
        f"{DIFFERENCES}[Decoder: post-norm, dropout 0.0]",
        (TRANSFORMER, "[d + share for d, share in zip(dothers, shares)] if dothers else shares", "shares"),
    ),
    mutant(
        "one-layer-n-times",
        "`[layer] * N` is one layer N times: every gradient is right, but the encoder has only an N-th of its weights.",
        f"{IN_MODEL}number_of_parameters[C1]",
        (
            TRANSFORMER,
            "[self.kind(config, init, dtype) for _ in range(config.N)]",
            "[self.kind(config, init, dtype)] * config.N if self.kind is EncoderLayer else "
            "[self.kind(config, init, dtype) for _ in range(config.N)]",
        ),
        suspect="Encoder",
    ),
    mutant(
        "seed-of-the-weights-ignored",
        "Every run starts from the same weights, whatever the seed.",
        f"{IN_CHECKS}[Transformer: structure 3 [post]]",
        (TRANSFORMER, "np.random.default_rng(seed)", "np.random.default_rng(0)"),
    ),
    # Dropout ----------------------------------------------------------------------------------------------------------
    mutant(
        "inference-scaled",
        "At inference nothing is dropped, but everything is multiplied by 1 / (1 - p).",
        f"{IN_CHECKS}[dropout: dropout]",
        (
            OPS,
            "        if rng is None or P_drop == 0:\n            return x, None\n",
            """\
        if P_drop == 0:
            return x, None
        if rng is None:
            return x * keep_scale(P_drop), None
""",
        ),
        origin=AKIRUSPROD,
    ),
    mutant(
        "dropout-always-on",
        "Units are dropped at inference too: translations are made with random units missing.",
        f"{IN_CHECKS}[dropout: dropout]",
        (
            OPS,
            "        if rng is None or P_drop == 0:\n            return x, None\n",
            """\
        if P_drop == 0:
            return x, None
        rng = rng or DropoutKey(seed=0, step=0)
""",
        ),
        origin=ULTRON09,
    ),
    mutant(
        "dropout-not-scaled",
        "The units that are kept are not scaled up: at inference every unit is larger than in training.",
        f"{IN_CHECKS}[dropout: dropout]",
        (OPS, "        dx *= keep_scale(P_drop)\n", ""),
    ),
    mutant(
        "one-mask-for-all-sites",
        "All layers draw with the same key, so the same units are dropped everywhere.",
        f"{IN_CHECKS}[dropout: dropout 2]",
        (DROPOUT, "return self._replace(site=self.site * CHILDREN + index + 1)", "return self"),
    ),
    mutant(
        "one-mask-for-all-steps",
        "The mask does not depend on the step: dropout becomes a fixed, smaller network.",
        f"{IN_CHECKS}[dropout: dropout 2]",
        (DROPOUT, "[0, self.step, self.shard, 0]", "[0, 0, self.shard, 0]"),
    ),
    mutant(
        "one-dropout-object-for-two-sites",
        "The sublayers share one dropout object, which remembers its last mask only: backward uses that everywhere. "
        "Each layer alone is right; encoder and decoder of different lengths raise.",
        f"{DIFFERENCES}[EncoderLayer: post-norm, dropout 0.3]",
        (
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
        (LAYERS, "add_norm_backward(dy, cache,", "add_norm_backward(dy, (AddNorm.kept, cache),"),
        suspect="AddNorm",
        origin=AKIRUSPROD,
    ),
    mutant(
        "stale-dropout-mask",
        "The layer stores its last mask, and a forward without dropout does not clear it: the next backward uses the "
        "mask of another call.",
        f"{DIFFERENCES}[PositionalEncoding: from the start, dropout 0.3]",
        (
            LAYERS,
            "        self.table: Array | None = None\n",
            "        self.table: Array | None = None\n        self.kept = None\n",
        ),
        (
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
        (
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
        origin=CSD81,
    ),
    # The loss ---------------------------------------------------------------------------------------------------------
    mutant(
        "target-found-by-value",
        "The gradient finds the target's class by the value of its score: every class with an equal score is treated "
        "as the target.",
        f"{DIFFERENCES}[CrossEntropy: no smoothing, dropout 0.0]",
        (OPS, "dlogits[row, targets] -= on_target", "dlogits[dlogits == dlogits[row, targets][:, None]] -= on_target"),
        suspect="cross_entropy",
        origin=AKIRUSPROD,
    ),
    mutant(
        "log-of-softmax",
        "The loss is the log of the softmax: infinite when a probability underflows.",
        f"{IN_CHECKS}[cross_entropy: loss 2]",
        (
            OPS,
            """\
        smoothed_score = on_target * dlogits[row, targets]
        if off_target:
            smoothed_score += off_target * dlogits.sum(axis=-1)
""",
            "",
        ),
        (
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
        origin=RZIGA,
    ),
    mutant(
        "smoothing-not-in-the-gradient",
        "The reported loss is smoothed, the gradient is not.",
        f"{DIFFERENCES}[CrossEntropy: smoothing spread over the others, dropout 0.0]",
        (
            OPS,
            """\
        dlogits -= off_target  # p - q, in place of p
        dlogits[row, targets] -= on_target
""",
            """\
        dlogits[row, targets] -= 1
""",
        ),
        suspect="cross_entropy",
    ),
    mutant(
        "padding-is-a-target",
        "Padding counts as a target in the loss: the model learns to write it.",
        f"{IN_CHECKS}[cross_entropy: loss]",
        (OPS, "        dlogits *= real[:, None]\n", ""),
        (OPS, "return (losses * real).sum(dtype=xp.float64), dlogits", "return losses.sum(dtype=xp.float64), dlogits"),
    ),
    mutant(
        "loss-averaged-over-padding",
        "Padding adds zeros to the loss but counts in its mean: with half padding, half the loss.",
        f"{IN_CHECKS}[Transformer: padding and batch [post]]",
        (LOSS, "return loss_sum, len(rows), dstates", "return loss_sum, target_ids.size, dstates"),
        origin=AKIRUSPROD,
    ),
    # The optimizer and the step ---------------------------------------------------------------------------------------
    mutant(
        "second-moment-with-beta1",
        "The mean of the squares weights each new square by (1 - beta1) instead of (1 - beta2): every step is too "
        "small.",
        f"{IN_CHECKS}[Adam: optimizer and schedule]",
        (OPS, "v_block += (1 - beta2) * (g * g)", "v_block += (1 - beta1) * (g * g)"),
        origin=RZIGA,
    ),
    mutant(
        "adam-never-counts",
        "Adam's t is a constant instead of the number of the step, so the bias correction never changes. In the "
        "original, t was the index of the layer.",
        f"{IN_CHECKS}[Adam: optimizer and schedule]",
        (OPTIM, "self.t += 1", "self.t = 1"),
        origin=AKIRUSPROD,
    ),
    mutant(
        "adam-counts-arrays",
        "Adam's t grows once for each parameter array instead of once a step: the first steps get hardly any bias "
        "correction.",
        f"{IN_CHECKS}[Adam: optimizer and schedule]",
        (OPTIM, "self.t += 1", "self.t += len(self.store.parameters)"),
    ),
    mutant(
        "warmup-the-wrong-way-round",
        "max instead of min: the learning rate starts far too large, falls during warm-up, and rises ever after.",
        f"{IN_CHECKS}[noam: optimizer and schedule]",
        (OPTIM, "min(step**-0.5, step * warmup**-1.5)", "max(step**-0.5, step * warmup**-1.5)"),
    ),
    mutant(
        "schedule-advanced-per-array",
        "The schedule's counter advances for each parameter array: the 4000 warm-up steps are over after 39.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (TRAINER, "scheduled(self.config, step)", "scheduled(self.config, step * len(self.model.parameters()))"),
        suspect="Trainer.step",
        origin=AKIRUSPROD,
    ),
    mutant(
        "schedule-advanced-per-micro-batch",
        "The schedule's counter advances for each micro-batch, even when no step follows it.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (TRAINER, "scheduled(self.config, step)", "scheduled(self.config, step * len(batches))"),
        suspect="Trainer.step",
        origin=ANNOTATED,
    ),
    mutant(
        "gradient-over-sentences",
        "The loss is a mean over tokens, its gradient over sentences: T times too large.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (TRAINER, "self.parallel.average_inplace(n_tokens)", "self.parallel.average_inplace(len(indices))"),
        suspect="Trainer.step",
        origin=RZIGA,
    ),
    mutant(
        "gradient-not-divided",
        "The gradients of the micro-batches are added up and never divided. This is hard to notice, since Adam "
        "ignores a constant factor.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (TRAINER, "self.parallel.average_inplace(n_tokens)", "self.parallel.average_inplace(1)"),
        suspect="Trainer.step",
        origin=ANNOTATED,
    ),
    mutant(
        "mean-of-means",
        "Each micro-batch is divided by its own tokens and the means are averaged: a token in a small micro-batch "
        "counts more.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (
            DATA_PARALLEL,
            "                    loss_sum = loss_sum + loss\n",
            """\
                    loss_sum = loss_sum + loss
                    mean += model.store.grad / batches[shard].n_target_tokens / len(batches)
                    model.zero_grad()
""",
        ),
        (
            DATA_PARALLEL,
            "model, loss_sum = self.replicas[replica], 0.0\n",
            """\
model, loss_sum = self.replicas[replica], 0.0
            mean = np.zeros_like(model.store.grad)
""",
        ),
        (
            DATA_PARALLEL,
            "            return loss_sum\n",
            """\
            model.store.grad[...] = mean
            return loss_sum
""",
        ),
        (TRAINER, "self.parallel.average_inplace(n_tokens)", "self.parallel.average_inplace(1)"),
        suspect="Trainer.step",
    ),
    mutant(
        "partial-accumulation-divided-in-full",
        "A step with fewer micro-batches than usual is still divided by the usual number.",
        f"{IN_LOOP}a_step_of_fewer_micro_batches_is_divided_by_its_own_tokens",
        (
            TRAINER,
            "self.parallel.average_inplace(n_tokens)",
            "self.parallel.average_inplace(n_tokens * settings.accumulation / len(batches))",
        ),
        suspect="Trainer.step",
        origin=CSD81,
    ),
    mutant(
        "ranks-all-compute-everything",
        "Every process computes all micro-batches of the step: no work is shared, and the sum is N times too large.",
        f"{IN_RANKS}any_division_is_that_of_one_thread_to_rounding",
        (
            DATA_PARALLEL,
            "range(rank + n_ranks * replica, len(batches), n_ranks * n_replicas)",
            "range(replica, len(batches), n_replicas)",
        ),
    ),
    mutant(
        "ranks-divide-by-their-own-tokens",
        "Each process divides by the tokens of its own micro-batches: the weights of the processes drift apart.",
        f"{IN_RANKS}any_division_is_that_of_one_thread_to_rounding",
        (
            DATA_PARALLEL,
            "sum(batch.n_target_tokens for batch in batches)",
            "sum(batches[shard].n_target_tokens for share in shares for shard in share)",
        ),
    ),
    mutant(
        "ranks-share-their-dropout",
        "All processes draw the same masks: they have the same seed, and each counts only its own micro-batches.",
        f"{IN_RANKS}ranks_find_the_bits_that_threads_find",
        (DATA_PARALLEL, "DropoutKey(settings.seed, step, shard)", "DropoutKey(settings.seed, step, shard // n_ranks)"),
    ),
    mutant(
        "bucket-sent-before-it-is-full",
        "A bucket is sent when the first of its layers to finish is done, not the last: part of the gradient is "
        "never sent.",
        f"{IN_RANKS}what_is_sent_during_backward_does_not_change_any_more",
        (GRADIENT, "self.buckets[self.n_sent].start >= offset", "self.buckets[self.n_sent].stop > offset"),
    ),
    mutant(
        "ranks-keep-their-loss",
        "The log shows the loss of the first process's share as the loss of the step.",
        f"{IN_RANKS}ranks_find_the_bits_that_threads_find",
        (DATA_PARALLEL, "            self.between_devices.all_reduce_inplace(total)\n", ""),
    ),
    mutant(
        "resumed-by-the-first-rank-alone",
        "Only the first process reads the checkpoint; the others go on with fresh weights.",
        f"{IN_RANKS}a_rank_learns_from_the_first_one_where_the_run_stands",
        (SAVING, "            trainer.between_devices.broadcast_inplace(array)\n", "            pass\n"),
    ),
    mutant(
        "validation-of-one-rank",
        "The validation text is divided among the processes, and each takes the loss of its share for that of the "
        "whole text.",
        f"{IN_RANKS}validation_does_not_depend_on_the_number_of_ranks",
        (VALIDATION, "        ranks.all_reduce_inplace(row)\n", "        pass\n"),
    ),
    mutant(
        "gradient-not-zeroed",
        "The gradient of the last step is still there when the next begins.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (TRAINER, "            self.model.store.grad[...] = 0\n", ""),
        suspect="Trainer.step",
    ),
    mutant(
        "clipped-before-divided",
        "The gradient is clipped before it is divided by the number of tokens: the limit depends on the size of the "
        "batch.",
        f"{IN_LOOP}a_step_divides_by_the_tokens_of_all_micro_batches",
        (
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
        ),
        suspect="Trainer.step",
    ),
    mutant(
        "training-without-dropout",
        "Training does not pass the dropout key: nothing is ever dropped.",
        f"{IN_LOOP}every_micro_batch_of_every_step_draws_masks_of_its_own",
        (DATA_PARALLEL, "DropoutKey(settings.seed, step, shard)", "None"),
        suspect="Trainer.step",
    ),
    mutant(
        "one-mask-for-all-micro-batches",
        "The micro-batches of a step draw the same masks.",
        f"{IN_LOOP}every_micro_batch_of_every_step_draws_masks_of_its_own",
        (DATA_PARALLEL, "DropoutKey(settings.seed, step, shard)", "DropoutKey(settings.seed, step)"),
        suspect="Trainer.step",
    ),
    # Batches ----------------------------------------------------------------------------------------------------------
    mutant(
        "target-not-shifted",
        "The decoder reads the very token it is to predict: the loss falls to nothing, and translations are noise.",
        f"{IN_BATCHES}a_batch_written_out",
        (BATCHES, "np.where(target_out_ids[:, 1:] != PAD, target_out_ids[:, :-1], PAD)", "target_out_ids[:, 1:]"),
        suspect="batches",
    ),
    mutant(
        "no-end-symbol",
        "Sentences are encoded without EOS: the model never learns to stop.",
        f"{IN_BATCHES}ids_are_stored_flat_with_eos",
        (BATCHES, "Sequences.of([*ids, EOS] for", "Sequences.of(list(ids) for"),
        suspect="batches",
    ),
    mutant(
        "same-order-every-epoch",
        "Every epoch has the same batches in the same order.",
        f"{IN_BATCHES}the_order_depends_on_seed_and_epoch_alone",
        (BATCHES, "np.random.PCG64([self.seed, epoch])", "np.random.PCG64([self.seed])"),
        suspect="batches",
        origin=CSD81,
    ),
    mutant(
        "short-sentences-first",
        "Every epoch runs from the short sentences to the long ones.",
        f"{IN_BATCHES}steps_come_in_no_order_of_length",
        (
            BATCHES,
            "return [bucket_by_bucket[i] for i in rng.permutation(len(bucket_by_bucket))]",
            "return bucket_by_bucket",
        ),
        suspect="batches",
        origin=CSD81,
    ),
    mutant(
        "remainder-dropped",
        "The last, smaller step of each bucket is left out: some pairs are not in the epoch.",
        f"{IN_BATCHES}every_pair_is_in_one_step_of_one_bucket_within_the_budget[1-1]",
        (
            BATCHES,
            "for i in range(0, len(members), pairs_per_step)]",
            "for i in range(0, len(members) - pairs_per_step + 1, pairs_per_step)]",
        ),
        suspect="batches",
    ),
    # Stopping and going on --------------------------------------------------------------------------------------------
    mutant(
        "resume-updates-another-model",
        "After loading, the optimizer still holds the weights of the previous model: training goes on, and nothing "
        "changes.",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        (
            SAVING,
            "            checkpoints.copy_into(found.weights, store.named_views(store.data), path)\n",
            """\
            trainer.model = type(trainer.model)(trainer.config.model, trainer.config.training.seed)
            checkpoints.copy_into(found.weights, trainer.model.store.named_views(trainer.model.store.data), path)
""",
        ),
        origin=AKIRUSPROD,
    ),
    mutant(
        "resume-forgets-the-moments",
        "Adam's moments are saved and not read back.",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        (SAVING, "            checkpoints.copy_into(found.moments, moment_views(trainer), path)\n", ""),
    ),
    mutant(
        "resume-restarts-adams-clock",
        "Adam's t is 0 again after loading: the bias correction of the first steps comes a second time.",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        (SAVING, "    trainer.optimizer.t = trainer.progress.step\n", ""),
    ),
    mutant(
        "resume-repeats-a-batch",
        "The checkpoint names the last batch, not the next one.",
        f"{IN_RESUME}a_resumed_run_is_an_uninterrupted_run[4]",
        (TRAINER, "index=index + 1,", "index=index,"),
    ),
    mutant(
        "average-counts-the-last-twice",
        "The sum starts with the last checkpoint, which is then added once more.",
        f"{IN_CHECKPOINTS}the_average_is_the_mean",
        (CHECKPOINTS, "for path in paths[:-1]:", "for path in paths:"),
    ),
    # Looking at the model ---------------------------------------------------------------------------------------------
    mutant(
        "validation-loss-smoothed",
        "The validation loss is label-smoothed, like that of training, so its exponential is not the perplexity.",
        f"{IN_LOOP}the_validation_loss_is_plain_and_independent_of_batching",
        (
            VALIDATION,
            "batch_loss(model, batch.inputs, batch.targets)",
            "batch_loss(model, batch.inputs, batch.targets, 0.1)",
        ),
    ),
    mutant(
        "bleu-over-special-symbols",
        "BLEU compares '<s>the cat </s>' with 'the cat'.",
        f"{IN_LOOP}bleu_of_perfect_translations_is_100",
        (
            TRANSLATION,
            "corpus_scores(translations, target, language)",
            "corpus_scores([f'<s>{text} </s>' for text in translations], target, language)",
        ),
        origin=CSD81,
    ),
    mutant(
        "bleu-of-teacher-forced-guesses",
        "BLEU is computed from the most likely next words while the decoder reads the reference: nothing was "
        "translated.",
        f"{IN_LOOP}bleu_of_perfect_translations_is_100",
        (
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
        ),
        origin=HYUNWOONGKO,
    ),
    # The other layers of Table 1 --------------------------------------------------------------------------------------
    mutant(
        "causal-convolution-centred",
        "The window of a causal layer stays centred, so that each position reads those after it.",
        f"{IN_CHECKS}[Convolution: formulas]",
        (SEQUENCE_LAYERS, "back = span if causal else span // 2", "back = span // 2"),
    ),
    mutant(
        "dilation-minus-one",
        "What a dilated window reads is one position less apart than it should be; gradients are exact.",
        f"{IN_CHECKS}[Convolution: formulas]",
        (
            SEQUENCE_LAYERS,
            "place * dilation : place * dilation + T",
            "place * max(1, dilation - 1) : place * max(1, dilation - 1) + T",
        ),
    ),
    mutant(
        "convolution-reads-padding",
        "The zeros after a sentence stand after its padding: the last words depend on how long other sentences are.",
        f"{IN_CHECKS}[Convolution: formulas]",
        (SEQUENCE_LAYERS, "= x if mask.key_lengths is None else x * not_padding(xp, T, mask)", "= x"),
        (
            SEQUENCE_LAYERS,
            "return dx if mask.key_lengths is None else dx * not_padding(ops_of(dx).xp, T, mask)",
            "return dx",
        ),
    ),
    mutant(
        "window-one-too-wide",
        "Restricted attention reaches r + 1 positions instead of r; gradients are exact.",
        f"{IN_CHECKS}[RestrictedAttention: formulas]",
        (SEQUENCE_LAYERS, "padding_of(self.r, 1, causal)", "padding_of(self.r + 1, 1, causal)"),
        (SEQUENCE_LAYERS, "padding_of(self.r, 1, mask.causal)", "padding_of(self.r + 1, 1, mask.causal)"),
    ),
    # A text encoder ---------------------------------------------------------------------------------------------------
    mutant(
        "token-types-swapped",
        "The first segment gets the vector of the second: exact gradients, and wrong with weights from elsewhere.",
        f"{IN_CHECKS}[TokenTypes: formulas]",
        (TEXT_ENCODER, "gather_rows(self.weight.data, token_types", "gather_rows(self.weight.data, 1 - token_types"),
        (TEXT_ENCODER, "is_of_type = token_types.reshape", "is_of_type = (1 - token_types).reshape"),
    ),
    mutant(
        "class-from-the-last-position",
        "The class is read from the last column instead of the first: padding, unless the text is the longest.",
        f"{IN_CHECKS}[TextEncoder: dependence on positions [post]]",
        (TEXT_ENCODER, "return states[:, :1], (states", "return states[:, -1:], (states"),
        (TEXT_ENCODER, "dstates[:, :1] = dfirst", "dstates[:, -1:] = dfirst"),
    ),
    mutant(
        "same-masks-in-every-epoch",
        "What is hidden does not depend on the epoch: the model never learns from the other 85 % of the pieces.",
        f"{IN_MASKING}each_epoch_hides_other_pieces_and_a_repeated_one_the_same",
        (MASKING, "PCG64([self.seed, epoch, 1])", "PCG64([self.seed, 0, 1])"),
    ),
    mutant(
        "special-tokens-hidden",
        "The start and end symbols are chosen like pieces, and the model spends its capacity on what is always there.",
        f"{IN_MASKING}no_special_token_is_chosen_and_every_text_has_a_target",
        (
            MASKING,
            "pieces = np.flatnonzero(texts.ids > MASK)\n    pieces =",
            "pieces = np.flatnonzero(texts.ids > PAD)\n    pieces =",
        ),
    ),
    # Images -----------------------------------------------------------------------------------------------------------
    mutant(
        "patches-cut-without-transpose",
        "(B, height, width) is reshaped into patches without exchanging the axes: each patch is a part of a pixel row.",
        f"{IN_CHECKS}[PatchEmbedding: formulas]",
        (VISION, "P, width // P, P).swapaxes(2, 3)", "width // P, P, P)"),
        (VISION, "dpatches.reshape(shape).swapaxes(2, 3)", "dpatches"),
    ),
    mutant(
        "class-token-behind",
        "The class token is put behind the patches, so that the state of the first patch decides.",
        f"{IN_CHECKS}[ClassToken: formulas]",
        (VISION, "y[:, 0], y[:, 1:] = self.weight.data, x", "y[:, -1], y[:, :-1] = self.weight.data, x"),
        (VISION, "self.weight.grad += dy[:, 0].sum", "self.weight.grad += dy[:, -1].sum"),
        (VISION, "return dy[:, 1:]", "return dy[:, :-1]"),
    ),
    mutant(
        "class-token-learns-from-one-image",
        "The gradient of the class token is that of the first image, not the sum over the batch.",
        f"{DIFFERENCES}[ClassToken: a batch of sequences, dropout 0.0]",
        (VISION, "dy[:, 0].sum(axis=0, dtype=self.weight.grad.dtype)", "dy[0, 0]"),
    ),
    # The tokenizer ----------------------------------------------------------------------------------------------------
    mutant(
        "tokenizer-trained-on-validation-text",
        "The vocabulary is also learned from the validation text.",
        f"{IN_LOOP}the_tokenizer_learns_from_the_training_text_alone",
        (
            TRANSLATION,
            "[*corpus.train.source, *corpus.train.target]",
            "[text for pairs in corpus if pairs for text in (*pairs.source, *pairs.target)]",
        ),
        origin=NEUNET,
    ),
    mutant(
        "merges-not-by-rank",
        "Pairs of pieces are merged from left to right instead of in the order they were learned: the pieces differ "
        "from those in training, though they spell the same text.",
        f"{IN_TOKENIZER}pairs_merge_in_the_order_they_were_learned",
        (
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
        ),
        origin=CSD81,
    ),
    # The next word ----------------------------------------------------------------------------------------------------
    mutant(
        "next-word-leaks-the-tag-to-be-written",
        "The tags are counted in the decoder's output, so that each position is told whether it writes a tag.",
        f"{IN_CHECKS}[NextWord: formulas 2]",
        (
            NEXT_WORD,
            "np.cumsum(self.is_tag(target_in_ids), axis=1)",
            "np.cumsum(self.is_tag(np.roll(target_in_ids, -1, axis=1)), axis=1)",
        ),
    ),
    mutant(
        "next-word-one-behind",
        "A tag that has just been written is not counted: the decoder is told the word that has its tag already.",
        f"{IN_MODEL}the_next_word_is_the_first_without_a_tag",
        (
            NEXT_WORD,
            "np.cumsum(self.is_tag(target_in_ids), axis=1)",
            "np.cumsum(self.is_tag(target_in_ids), axis=1) - self.is_tag(target_in_ids)",
        ),
        suspect="NextWord",
    ),
    mutant(
        "next-word-without-its-gradient",
        "The encoder gets no gradient from the words that the decoder is told: it is as if they were constants.",
        f"{DIFFERENCES}[NextWord: ragged padding, more tags than words, dropout 0.0]",
        (NEXT_WORD, "rows.reshape(-1) + 1, 1.0, dwords)", "rows.reshape(-1) + 1, 0.0, dwords)"),
    ),
    mutant(
        "next-word-beyond-the-source",
        "With more tags than words the decoder is told a row of padding, or the first word of the next sentence.",
        f"{IN_MODEL}the_next_word_is_the_first_without_a_tag",
        (NEXT_WORD, "S - 1 if lengths is None else np.maximum(lengths, 1)[:, None] - 1", "S - 1"),
        suspect="NextWord",
    ),
    # Decoding ---------------------------------------------------------------------------------------------------------
    mutant(
        "past-not-extended",
        "A decoding step attends only to itself and forgets the earlier ones: each word is chosen without the words "
        "before it.",
        f"{IN_CHECKS}[decoding step: decoding [post]]",
        (ATTENTION, "            k, v = kv_cache.extend(k, v)  # S positions\n", "            kv_cache.extend(k, v)\n"),
    ),
    mutant(
        "every-step-at-position-zero",
        "A decoding step sees one token and gives it position 0.",
        f"{IN_CHECKS}[decoding step: decoding [post]]",
        (INCREMENTAL, "x.shape[-1]), state.position)", "x.shape[-1]))"),
    ),
    mutant(
        "nucleus-without-its-last-token",
        "The likeliest tokens that top_p leaves have together less than this probability, not at least as much.",
        f"{IN_GENERATION}the_distribution_is_the_one_asked_for",
        (GENERATION, "ranked[of_likelier >= top_p] = 0", "ranked[:, 1:][(of_likelier + ranked)[:, 1:] > top_p] = 0"),
    ),
    mutant(
        "overlap-of-windows-counted-twice",
        "What two windows of the validation text share is predicted, and counted, in both.",
        f"{IN_WINDOWS}validation_predicts_each_token_once_from_half_a_window_or_more[4]",
        (WINDOWS, "columns >= self.n_done[indices, None]", "columns >= 0 * self.n_done[indices, None]"),
    ),
    mutant(
        "masks-of-finished-sentences-stay",
        "When a sentence is finished, its row leaves the cache but its length stays: the other sentences get each "
        "other's masks.",
        f"{IN_CHECKS}[decoding step: decoding [post]]",
        (INCREMENTAL, "self.memory_mask.key_lengths[sentences]", "self.memory_mask.key_lengths[:len(sentences)]"),
    ),
    mutant(
        "past-not-reordered",
        "The beam chooses new parents, but the cached keys and values stay with the old ones.",
        f"{IN_SEARCH}cached_scores_are_those_of_the_full_decoder[5-post-sinusoidal-all0]",
        (SEARCH, "(kept[:, None] * W + parents[kept])", "(kept[:, None] * W + np.arange(alive.shape[1]) % W)"),
    ),
    mutant(
        "score-without-penalty",
        "Hypotheses are ranked by log probability alone: short ones win.",
        f"{IN_SEARCH}a_length_penalty_prefers_longer_translations",
        (SEARCH, "score = log_probability / length_penalty(len(ids), alpha)", "score = log_probability"),
    ),
    mutant(
        "score-over-power-of-length",
        "The penalty is n^alpha instead of ((5 + n) / 6)^alpha.",
        f"{IN_SEARCH}the_length_penalty_of_the_paper",
        (SEARCH, "return ((5 + n_tokens) / 6) ** alpha", "return n_tokens ** alpha"),
        origin=CSD81,
    ),
    mutant(
        "penalty-forgets-the-end",
        "The log probability includes EOS, the length does not.",
        f"{IN_SEARCH}cached_scores_are_those_of_the_full_decoder[1-post-sinusoidal-all0]",
        (SEARCH, "length_penalty(len(ids), alpha)", "length_penalty(len(ids) - (EOS in ids), alpha)"),
    ),
    mutant(
        "finished-hypotheses-take-places",
        "Finished hypotheses keep their place in the beam, which gets narrower as translations are found.",
        f"{IN_SEARCH}a_small_beam_is_that_of_the_textbook[2-1-post-sinusoidal-all0-free]",
        (SEARCH, "(logits, alive, 2 * beam, allowed)", "(logits, alive, beam, allowed)"),
        (SEARCH, "min(beam, best.shape[1] - W)", "beam"),
        (
            SEARCH,
            "        ids = np.concatenate([np.take_along_axis(ids,",
            """\
        alive = np.where(tokens == EOS, -np.inf, alive)
        ids = np.concatenate([np.take_along_axis(ids,""",
        ),
        origin=CSD81,
    ),
    mutant(
        "beam-stops-too-early",
        "The search ends when no live hypothesis beats the finished ones at its present length, though it still "
        "could when longer.",
        f"{IN_SEARCH}a_small_beam_is_that_of_the_textbook[2-1-pre-sinusoidal-all0-free]",
        (
            SEARCH,
            "length_penalty(longest[active], alpha)\n        at_end",
            "length_penalty(state.position, alpha)\n        at_end",
        ),
    ),
    mutant(
        "beam-of-equals",
        "All hypotheses begin with the same score, so the beam fills with copies of the best one.",
        f"{IN_SEARCH}nbest_is_sorted_and_without_doubles[post-sinusoidal-all0]",
        (SEARCH, "ids = np.full((len(active), 1, 1), BOS)", "ids = np.full((len(active), beam, 1), BOS)"),
        (SEARCH, "alive = np.zeros((len(active), 1))", "alive = np.zeros((len(active), beam))"),
    ),
    mutant(
        "logits-as-log-probabilities",
        "The beam adds up logits without normalising them: the most likely word costs nothing, however unlikely it is.",
        f"{IN_SEARCH}cached_scores_are_those_of_the_full_decoder[2-post-sinusoidal-all0]",
        (SEARCH, "xp.asarray(alive) - ops.log_sum_exp(logits)", "xp.asarray(alive)"),
    ),
    mutant(
        "padding-may-be-written",
        "A search may choose PAD as the next word.",
        f"{IN_SEARCH}padding_and_start_symbol_are_never_written[1]",
        (SEARCH, "for id_ in (PAD, BOS):", "for id_ in (BOS,):"),
    ),
    mutant(
        "greatest-length-of-the-batch",
        "The length limit of a translation depends on the longest sentence of its batch.",
        f"{IN_SEARCH}no_translation_is_longer_than_allowed[changes0-20-1]",
        (
            SEARCH,
            "longest = lengths_of(source_ids) + extra_length",
            "longest = np.full(len(source_ids), source_ids.shape[1] + extra_length)",
        ),
    ),
    mutant(
        "translations-in-order-of-length",
        "Sentences are sorted by length for speed, and their translations are not put back in order.",
        f"{IN_TRANSLATOR}translations_come_in_the_order_of_the_sentences",
        (
            TRANSLATOR,
            "for index, hypotheses in zip(indices, found):",
            "for index, hypotheses in zip(sorted(indices), found):",
        ),
    ),
    # The checks themselves --------------------------------------------------------------------------------------------
    mutant(
        "check-draws-as-its-callers",
        "The gradient check draws the gradient of the output from `default_rng(seed)`, as callers draw x: it is "
        "parallel to x, along which the gradient of a LayerNorm is zero.",
        f"{IN_GRADCHECK}zeros_as_the_gradient_of_a_norm_are_refused_wherever_x_comes_from[0]",
        (
            GRADCHECK,
            "lambda shape: np.asarray(np.random.default_rng(*streams.spawn(1)).standard_normal(shape))",
            "lambda shape: np.asarray(np.random.default_rng(seed).standard_normal(shape))",
        ),
    ),
    mutant(
        "check-accepts-a-parallel-gradient",
        "The gradient check goes on if its gradient of the output is parallel to an input.",
        f"{IN_GRADCHECK}a_gradient_parallel_to_an_input_is_refused",
        (GRADCHECK, "    require_not_parallel(upstream, arguments)\n", ""),
    ),
    mutant(
        "check-begins-at-zero",
        "The gradient check begins with gradients of zero, so that it does not notice `.grad[...] = g`.",
        f"{IN_GRADCHECK}a_gradient_that_is_right_for_one_first_call_only_is_refused[Overwrites-refused0]",
        (GRADCHECK, "start = {name: draw(grad.shape) for", "start = {name: 0 * draw(grad.shape) for"),
    ),
    mutant(
        "check-accepts-a-replaced-gradient",
        "The gradient check reads a gradient that backward has put in place of the one that the optimizer reads.",
        f"{IN_GRADCHECK}a_layer_that_breaks_its_contract_is_refused",
        (GRADCHECK, "if parameter.grad is not grads[name]:", "if False:"),
    ),
    mutant(
        "check-ignores-changed-arguments",
        "The gradient check does not notice that backward changes dy, an input or its cache.",
        f"{IN_GRADCHECK}a_layer_that_breaks_its_contract_is_refused[ChangesDy-backward changes dy]",
        (
            GRADCHECK,
            "if not np.array_equal(array, copy, equal_nan",
            "if False and np.array_equal(array, copy, equal_nan",
        ),
    ),
    mutant(
        "check-of-a-single-call",
        "The gradient check makes one call alone, so that a layer may remember its last call.",
        f"{IN_GRADCHECK}a_gradient_that_is_right_for_one_first_call_only_is_refused[RemembersItsLastCall-refused1]",
        (
            GRADCHECK,
            "    other_y, other_cache = layer.forward(*(map_arrays(reordered, value) for value in inputs), "
            "rng=other_key)\n    backward_of(layer, draw(other_y.shape), other_cache, grads, start=grads)\n",
            "",
        ),
    ),
    mutant(
        "layers-in-dicts-are-overlooked",
        "The parameters of layers in a dict are neither checked nor trained.",
        f"{IN_PARAMETERS}layers_in_dicts_and_tuples_are_found_and_checked",
        (PARAMETER, "        items = value.items()\n", "        return\n"),
    ),
    mutant(
        "hidden-parameters-are-overlooked",
        "A layer in a set, a closure or another object is neither checked nor trained, and nothing is said.",
        f"{IN_PARAMETERS}a_layer_that_would_not_be_found_is_refused_by_name",
        (PARAMETER, "if any(id(parameter) not in found for parameter in parameters_behind(item)):", "if False:"),
    ),
    mutant(
        "two-parameters-of-one-name",
        "Of two parameters with one name, one is neither checked nor trained.",
        f"{IN_PARAMETERS}two_parameters_of_one_name_are_refused",
        (
            PARAMETER,
            "if named.setdefault(name, parameter) is not parameter:",
            "if not named.setdefault(name, parameter):",
        ),
    ),
    mutant(
        "check-with-new-weights",
        "The gradient check leaves gamma at 1 and a gate at 0, where some wrong gradients are right.",
        f"{IN_GRADCHECK}faults_that_new_weights_hide_are_refused",
        (GRADCHECK, "                array += 0.5 * draw(array.shape)\n", "                pass\n"),
    ),
    mutant(
        "optimizer-of-an-old-store",
        "After the store of a model is rebuilt, the old optimizer trains weights that the model no longer reads.",
        f"{IN_PARAMETERS}an_optimizer_of_the_old_store_is_refused",
        (OPTIM, "        self.store.require(self.store.parameters)\n        self.t += 1\n", "        self.t += 1\n"),
    ),
    mutant(
        "adam-trains-the-layers-of-yesterday",
        "Adam takes a model with a layer that its store does not hold, and never changes that layer.",
        f"{IN_PARAMETERS}a_layer_put_into_a_finished_model_is_refused_until_the_store_is_rebuilt",
        (OPTIM, "self.store.require(model.parameters())", "self.store.require(self.store.parameters)"),
    ),
    mutant(
        "weights-in-other-code",
        "Weights that were trained with a patched activation are loaded without a word and translate nonsense.",
        f"{IN_RESUME}weights_trained_in_other_code_are_told",
        (MODEL_CODE, "if found.get(name) != now.get(name)", "if found.keys() != now.keys()"),
    ),
    mutant(
        "rms-of-the-centred-input",
        "RMSNorm subtracts the mean, as LayerNorm does, and its backward does not know.",
        f"{IN_CHECKS}[RMSNorm: formulas]",
        (LLAMA, "        n = x * inverse_rms\n", "        n = (x - x.mean(axis=-1, keepdims=True)) * inverse_rms\n"),
    ),
    mutant(
        "slope-of-silu-without-its-product",
        "The derivative of z sigmoid(z) is taken to be sigmoid(z): the second term of the product rule is missing.",
        f"{DIFFERENCES}[SwiGLU: a batch of sequences, dropout 0.0]",
        (LLAMA, "(s + gate * s * (1 - s))", "s"),
    ),
    mutant(
        "rotation-not-undone",
        "Backward turns the gradient by the same angle again, not by the opposite one.",
        f"{DIFFERENCES}[RotaryPositions: heads of q and k, dropout 0.0]",
        (LLAMA, "return self.turned(dy, cos, -sin)", "return self.turned(dy, cos, sin)"),
    ),
    mutant(
        "rotary-pairs-of-neighbours",
        "Angles are made for neighbours 2i and 2i + 1, but i and i + d_k / 2 are turned: published weights mean "
        "something else then.",
        f"{IN_CHECKS}[RotaryPositions: formulas]",
        (
            LLAMA,
            "self.theta ** (-np.arange(0, self.d_k, 2) / self.d_k)",
            "self.theta ** (-2 * (np.arange(self.d_k // 2) // 2) / self.d_k)",
        ),
    ),
    mutant(
        "rotary-positions-begin-again",
        "While it writes, each new token is turned as if it stood at position 0.",
        f"{IN_LLAMA}reading_in_parts_gives_the_logits_of_one_pass[{{}}]",
        (LLAMA, "self.positions.forward(qk, kv_cache.t if kv_cache else 0)", "self.positions.forward(qk, 0)"),
    ),
    mutant(
        "alibi-prefers-the-distant",
        "The bias has the wrong sign: far keys get higher scores than near ones.",
        f"{IN_LLAMA}alibi_subtracts_the_slope_of_each_head_times_the_distance",
        (LLAMA, "xp.asarray(2.0 ** (-8", "xp.asarray(-(2.0) ** (-8"),
        suspect="AlibiPositions",
    ),
    mutant(
        "group-sum-forgotten",
        "A shared head of keys and values gets the gradient of the first query head of its group alone.",
        f"{DIFFERENCES}[GroupedQueryAttention: rotary, two queries for each head of keys, dropout 0.0]",
        (LLAMA, "self.h_kv, -1, each.shape[-1]).sum(axis=3)", "self.h_kv, -1, each.shape[-1])[:, :, :, 0]"),
    ),
    mutant(
        "groups-interleaved",
        "Query head i reads the keys of head i % h_kv, not of i // (h / h_kv).",
        f"{IN_CHECKS}[GroupedQueryAttention: formulas]",
        (
            LLAMA,
            "ops_of(x).xp.repeat(x, self.h // self.h_kv, axis=2)",
            "ops_of(x).xp.concatenate([x] * (self.h // self.h_kv), axis=2)",
        ),
    ),
    mutant(
        "weight-decay-of-biases",
        "Weight decay also shrinks the gains of norms and the biases.",
        f"{IN_LLAMA}weight_decay_shrinks_matrices_alone_and_only_with_a_step",
        (
            OPTIM,
            "                if view.ndim > 1:\n                    view *= keep\n",
            "                view *= keep\n",
        ),
    ),
]
