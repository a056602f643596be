"""Measure what each attention head of a translator does and how much the model needs it: `scratchformer heads`.

Roles follow Voita et al. 2019 ("Analyzing Multi-Head Self-Attention"), who look for heads that attend to a neighbour,
and Figures 3 to 5 of the paper: distant words, and what a pronoun stands for. Each statistic has a bar: 0.5 for
attending to a place, uniform weights for distant words, the diagonal for alignment, a random choice for pronouns. A
head has a role only if it exceeds the bar by more than chance allows among so many heads. A position of the decoder is
named here by the piece that it has just read.

Importance follows Michel et al. 2019 ("Are Sixteen Heads Really Better than One?"): the rise of the loss without a
head, and E |dL/dxi|, the mean over sentences of the absolute gradient of its gate. Then heads are removed one after the
other. The model is not trained again, so this measures what it loses at once.

Scores of heads are arrays (A, H): a row for each attention (of the encoder's layers, then the decoder's self-attention,
then cross-attention). The number of a head is its index in the flattened array.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from statistics import NormalDist
from typing import Any, Callable, Collection, Iterable, Iterator, NamedTuple, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from threadpoolctl import threadpool_limits

from scratchformer.decoding.translator import Translator
from scratchformer.experiments import heads
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT, _NotebookFigure, as_default_style, draw_matrix, label
from scratchformer.experiments.heads import SentenceAttention
from scratchformer.nn.attention import CrossAttention, SelfAttention
from scratchformer.nn.head_gate import HeadGate, gated
from scratchformer.nn.loss import batch_loss_backward, states_loss
from scratchformer.nn.ops import using
from scratchformer.nn.transformer import Transformer
from scratchformer.progress import tqdm
from scratchformer.text.batches import EncodedPairs, batches_in_order, encode_pairs
from scratchformer.text.bleu import bleu_metric, corpus_scores
from scratchformer.text.bundled import Example, both_right, words
from scratchformer.text.corpora import Pairs

MOSTLY = 0.5
"""The bar for attending to a position. Voita et al. call a head positional from 0.9."""

FAR = 5
"""A word more than this many words away is far."""

ERROR_RATE = 0.05
"""The probability that chance alone gives a role to any head."""

MAX_LENGTH = 256
POSITIONS_AT_ONCE = 4096
N_RANDOM = 5
"""Number of random orders in which heads are removed."""

# Roles ----------------------------------------------------------------------------------------------------------------


class Observation(NamedTuple):
    """Counts of one role in one sentence or minimal pair.

    kind      "encoder", "decoder" (self-attention) or "cross"
    name      of the role
    by        attention of the baseline: uniform, diagonal or random choice
    hits      times each head did what the role says, (N, H)
    baseline  times expected of the baseline
    bar       times that a head must exceed
    cases     times it was possible
    """

    kind: str
    name: str
    by: str
    hits: np.ndarray
    baseline: float
    bar: float
    cases: float


def corrected_z(n_tried: int) -> float:
    """Bonferroni-corrected one-sided threshold, in standard errors, for this many comparisons."""
    return NormalDist().inv_cdf(1 - ERROR_RATE / n_tried)


def roles_of_heads(seen: Sequence[Observation]) -> list[dict[str, Any]]:
    """Sum up the observations of each role -> its record

    scores  (N, H), 0 to 1; baseline: that of the baseline
    heads   (N, H): True for a head that has the role, because its score exceeds the bar beyond chance
    """
    found: dict[tuple[str, str, str], list[Any]] = {}
    for observation in seen:
        found.setdefault(observation[:3], []).append(observation[3:])
    z = corrected_z(sum(rows[0][0].size for rows in found.values()))
    roles = []
    for (kind, name, by), rows in found.items():
        hits, baseline, bar, cases = (np.array(values, float) for values in zip(*rows))
        excess, errors = mean_and_error(hits - bar[:, None, None], cases)
        n = cases.sum()
        record = {"kind": kind, "name": name, "by": by, "baseline": float(baseline.sum() / n)}
        record |= {"scores": (hits.sum(axis=0) / n).tolist(), "heads": (excess > z * errors).tolist()}
        roles.append(record)
    return roles


def mean_and_error(values: np.ndarray, cases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean per case (a token, say) of sums over the cases of each sentence, and its standard error over sentences
    (of a ratio, linearised; infinite for one sentence).

    values (sentences, ...), cases (sentences,) -> (...), (...)
    """
    n, total = len(cases), cases.sum()
    mean = values.sum(axis=0) / total
    residuals = values - mean * cases.reshape(-1, *[1] * (values.ndim - 1))
    if n == 1:
        return mean, np.full(mean.shape, np.inf)
    return mean, np.sqrt(n / (n - 1) * (residuals**2).sum(axis=0)) / total


def observations(attention: SentenceAttention, example: Example) -> Iterator[Observation]:
    """Observe every role in a sentence; alignment only if the example has one.

    previous, same, next token; sentence start, sentence end    rows that attend most to this position
    words over 5 away                                           weight on them
    alignment                                                   aligned words whose translation is found
    """
    S, T = len(attention.source_word), len(attention.target_word)
    source, target, every, so_far = np.arange(S), np.arange(T), np.full(S, S), np.arange(1, T + 1)
    places = [
        ("encoder", "previous token", source - 1, every),
        ("encoder", "same token", source, every),
        ("encoder", "next token", source + 1, every),
        ("encoder", "sentence end", np.full(S, S - 1), every),
        ("decoder", "previous token", target - 1, so_far),
        ("decoder", "same token", target, so_far),
        ("decoder", "sentence start", np.zeros(T, int), so_far),
        ("cross", "sentence end", np.full(T, S - 1), np.full(T, S)),
    ]
    for kind, name, wanted, n_keys in places:
        asked = (0 <= wanted) & (wanted < n_keys) & (n_keys > 1)  # a row with one key has no choice
        hits = (getattr(attention, kind).argmax(axis=-1) == wanted)[..., asked].sum(axis=-1)  # (N, H)
        count = float(asked.sum())
        yield Observation(kind, name, "uniform", hits, float((1 / n_keys[asked]).sum()), MOSTLY * count, count)
    read = np.concatenate([[-1], attention.target_word[:-1]])  # the decoder reads a piece a step after it was written
    for kind, word, n_keys in (("encoder", attention.source_word, every), ("decoder", read, so_far)):
        far = (np.abs(word[:, None] - word) > FAR) & (word >= 0)
        far &= np.arange(len(word)) < n_keys[:, None]  # </s>, <s> and what a row cannot see are not far
        rows = word >= 0
        uniform = float((far / n_keys[:, None])[rows].sum())
        hits = (getattr(attention, kind) * far)[:, :, rows].sum(axis=(-2, -1))
        yield Observation(kind, f"words over {FAR} away", "uniform", hits, uniform, uniform, float(rows.sum()))
    if example.alignment:
        right = heads.right_choices(heads.aligned_words(attention.cross, attention), example)  # (N, H)
        diagonal = float(heads.right_choices(diagonal_of(example), example))
        yield Observation("cross", "alignment", "diagonal", right, diagonal, diagonal, heads.n_aligned(example))


def diagonal_of(example: Example) -> np.ndarray:
    return heads.diagonal_alignment(len(words(example.target)), len(words(example.source)))


def pronoun_observations(translator: Translator, pairs: Sequence[Example]) -> Iterator[Observation]:
    """For each of `heads.PRONOUN_VIEWS` and each minimal pair: more weight on the right noun in both sentences.

    A random choice is right in a quarter of the pairs. Attention by position alone is right in none.
    """
    weights = [heads.pronoun_weights(heads.sentence_attention(translator, each), each) for each in pairs]
    for view in heads.PRONOUN_VIEWS if pairs else ():
        kind, _, name = view.partition(", ")
        right = np.array([each[view][..., 0] > each[view][..., 1] for each in weights])  # (examples, N, H)
        for both in both_right(right, pairs):
            yield Observation(kind, name, "random choice", both, 0.25, 0.25, 1)


def alignment_accuracies(seen: Sequence[SentenceAttention], examples: Sequence[Example]) -> dict[str, float]:
    """The share of the right source words that attention and baselines find (`heads.AlignmentScore.accuracy`)."""
    chosen = {
        "attention of the last layer": [heads.aligned_words(each.cross[-1].mean(axis=0), each) for each in seen],
        "diagonal": [diagonal_of(example) for example in examples],
    }
    scores = {name: heads.alignment_score(found, examples).accuracy for name, found in chosen.items()}
    return scores | {"chance": heads.chance_accuracy(examples)}


# The text -------------------------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """Sentence pairs, the same as ids, and the language of the targets, which decides what BLEU counts as a token."""

    examples: list[Example]
    encoded: EncodedPairs
    language: str

    @property
    def n_tokens(self) -> np.ndarray:
        """Target tokens of each sentence, </s> included, (sentences,)."""
        return self.encoded.target.lengths


def text_of(translator: Translator, examples: Iterable[Example], n_sentences: int, language: str = "de") -> Text:
    """The first pairs of which no side is longer than MAX_LENGTH tokens, or than the model's table of positions."""
    config, encode = translator.model.config, translator.tokenizer.encode
    longest = min(MAX_LENGTH, config.max_positions) if config.positions == "learned" else MAX_LENGTH
    fitting = (each for each in examples if max(map(len, encode([each.source, each.target]))) < longest)
    found = list(islice(fitting, n_sentences))
    pairs = Pairs([each.source for each in found], [each.target for each in found], list(range(len(found))), 0)
    return Text(found, encode_pairs(encode, pairs, longest, longest), language)


# Importance -----------------------------------------------------------------------------------------------------------


def every_attention(model: Transformer) -> list[SelfAttention | CrossAttention]:
    """The attentions of all layers: of the encoder, then self-attention of the decoder, then cross-attention."""
    return [layer for layers in heads.attention_layers(model).values() for layer in layers]


def head_names(model: Transformer) -> list[str]:
    """Kind, layer and head, counted from 1, as in "cross 2.3"; in the order of the heads' numbers."""
    layers = [
        (kind, n, layer) for kind, found in heads.attention_layers(model).items() for n, layer in enumerate(found, 1)
    ]
    return [f"{kind} {n}.{head}" for kind, n, layer in layers for head in range(1, layer.h + 1)]


def close_only(gates: Sequence[HeadGate], closed: Collection[int]) -> None:
    """Close the gates of the heads with these numbers, and open all others.

    The rest of the model was trained with the heads, and has never seen a 0 in their place. So the damage shows what
    the model loses without preparation, not what it could have learnt to do without the heads.
    """
    for index, gate in enumerate(gates):
        H = len(gate.xi.data)
        gate.xi.data[...] = 1
        gate.xi.data[[head - index * H for head in closed if head // H == index]] = 0


@contextmanager
def computing(translator: Translator) -> Iterator[None]:
    """Use the operations and the threads of this translator."""
    with using(*translator.device.ops), threadpool_limits(translator.threads, "blas"):
        yield


def sentence_losses(translator: Translator, text: Text) -> np.ndarray:
    """The loss of each sentence without smoothing, in nats, summed over its tokens: (sentences,)."""
    model, losses = translator.model, np.zeros(len(text.encoded))
    with computing(translator):
        for batch in batches_in_order(text.encoded, POSITIONS_AT_ONCE):
            source_ids, target_in_ids = batch.inputs
            states, _ = model.states(source_ids, target_in_ids)  # (B, T, D)
            for index, of_one, target_ids in zip(batch.indices, states, batch.targets):
                losses[index], _, _ = states_loss(
                    model.unembedding, of_one[None], target_ids[None], 0.0, "others", gradient=False
                )
    return losses


def greedy_bleu(translator: Translator, text: Text) -> float:
    """sacreBLEU, 0 to 100, of greedy translations."""
    translations = translator.translate([each.source for each in text.examples], beam=1)
    return corpus_scores(translations, [each.target for each in text.examples], text.language).bleu


def without_each(translator: Translator, text: Text, measure: Callable[[Translator, Text], Any]) -> np.ndarray:
    """Measure the model without each of the heads, one at a time: (..., A, H)."""
    found = []
    with gated(every_attention(translator.model)) as gates:
        for head in range(len(head_names(translator.model))):
            close_only(gates, [head])
            found.append(measure(translator, text))
        return np.moveaxis(np.array(found), 0, -1).reshape(*np.shape(found[0]), len(gates), -1)


def gate_gradients(translator: Translator, text: Text) -> np.ndarray:
    """dL/dxi of each sentence, where L is its loss in nats, without smoothing and dropout: (sentences, A, H)

    Clears the gradients of the model.
    """
    model = translator.model
    with computing(translator), gated(every_attention(model)) as gates:
        found = []
        for index in range(len(text.encoded)):
            for gate in gates:
                gate.zero_grad()
            batch = text.encoded.batch(np.array([index]))
            batch_loss_backward(model, batch.inputs, batch.targets)
            found.append([gate.xi.grad.copy() for gate in gates])
    model.zero_grad()  # after the block: the gates are not in the model's store
    return np.array(found)


def gradient_importance(translator: Translator, text: Text) -> np.ndarray:
    """E |dL/dxi| (Michel et al. 2019, §4.1), in nats per target token: (A, H)

    The absolute value is taken of each sentence: a head that helps some and harms others matters, too.
    """
    return np.abs(gate_gradients(translator, text)).sum(axis=0) / text.n_tokens.sum()


def pruning_curve(
    translator: Translator, text: Text, order: Sequence[int], bleu_at: Collection[int] = ()
) -> dict[str, Any]:
    """Remove the heads in this order, and measure the model each time.

    losses  in nats per target token, after 0, 1, 2, ... heads
    bleus   number of heads removed -> sacreBLEU of greedy translations, for the numbers in `bleu_at`
    """
    losses, bleus = [], {}
    with gated(every_attention(translator.model)) as gates:
        for count in range(len(order) + 1):
            close_only(gates, order[:count])
            losses.append(float(sentence_losses(translator, text).sum() / text.n_tokens.sum()))
            if count in bleu_at:
                bleus[count] = greedy_bleu(translator, text)
    names = head_names(translator.model)
    return {"order": [names[head] for head in order], "losses": losses, "bleus": bleus}


def orders_of_removal(translator: Translator, text: Text) -> dict[str, list[int]]:
    """Orders of all heads by both measures on this text, the least important first, and at random."""
    by_loss = without_each(translator, text, sentence_losses).sum(axis=0).argsort(axis=None, kind="stable").tolist()
    by_gradient = gradient_importance(translator, text).argsort(axis=None, kind="stable").tolist()
    orders = {"by loss": by_loss, "by gradient": by_gradient, "by loss, reversed": by_loss[::-1]}
    for seed in range(N_RANDOM):
        orders[f"random {seed}"] = np.random.default_rng(seed).permutation(len(by_loss)).tolist()
    return orders


# The report -----------------------------------------------------------------------------------------------------------


def measure_heads(
    translator: Translator, text: Text, to_order: Text, to_prune: Text, pairs: Sequence[Example] = (), parts: int = 4
) -> dict[str, Any]:
    """Measure everything -> a record that JSON can hold, from which `as_text` and the figures are made

    text      the sentences on which each head is measured
    to_order  where the orders of removal are found; to_prune: where the curves are measured, other sentences
    pairs     minimal pairs, if there are any
    parts     number of parts into which BLEU divides a curve
    """
    names, n_tokens, intact = head_names(translator.model), text.n_tokens, sentence_losses(translator, text)
    rises, errors = mean_and_error(without_each(translator, text, sentence_losses) - intact[:, None, None], n_tokens)
    numbers = rises, errors, without_each(translator, text, greedy_bleu), gradient_importance(translator, text)
    with computing(translator):
        attentions = [heads.sentence_attention(translator, example) for example in text.examples]
        seen = [each for pair in zip(attentions, text.examples) for each in observations(*pair)]
        roles = roles_of_heads(seen + list(pronoun_observations(translator, pairs)))
    marks = {round(len(names) * part / parts) for part in range(parts + 1)}
    orders = tqdm(orders_of_removal(translator, to_order).items(), unit=" orders", disable=None, leave=False)
    return {
        "sentences": len(intact),
        "tokens": int(n_tokens.sum()),
        "loss": float(intact.sum() / n_tokens.sum()),  # nats per token
        "bleu": greedy_bleu(translator, text),
        "tokenizer": bleu_metric(text.language).tokenizer.signature(),
        "heads": {
            name: dict(zip(("rise", "error", "bleu", "gradient"), each))
            for name, *each in zip(names, *(array.reshape(-1).tolist() for array in numbers))
        },
        "roles": roles,
        "comparisons": sum(np.size(role["scores"]) for role in roles),
        "alignment": alignment_accuracies(attentions, text.examples) if text.examples[0].alignment else {},
        "curves": {name: pruning_curve(translator, to_prune, order, marks) for name, order in orders},
    }


def as_text(record: dict[str, Any]) -> str:
    """Write a line for each head, then what holds for all of them."""
    n, z, width = len(record["heads"]), corrected_z(len(record["heads"])), max(map(len, record["heads"]))
    lines = [
        f"{n} heads, {record['sentences']} sentence pairs, {record['tokens']} target tokens: "
        f"loss {record['loss']:.4f} nats a token, BLEU {record['bleu']:.2f} (greedy, tok:{record['tokenizer']})",
        "",
        f"{'without':{width}} {'loss':>8}  {'BLEU':>6} {'|dL/dxi|':>9}  role: score (baseline)",
    ]
    for name, head in record["heads"].items():
        mark = "*" if head["rise"] > z * head["error"] else " "
        numbers = f"{head['rise']:+8.4f}{mark} {head['bleu']:6.2f} {head['gradient']:9.4f}"
        lines.append(f"{name:{width}} {numbers}  {roles_of(name, record['roles'])}")
    lines += [
        "",
        f"* the loss rises beyond chance (corrected for {n} heads)",
        "[role]: not a role, only the statistic that comes nearest to one",
        f"A place is a role if its score exceeds {MOSTLY}, another statistic if it exceeds the number in brackets,",
        f"by more than chance allows in {record['comparisons']} comparisons.",
    ]
    if record["alignment"]:
        found = ", ".join(f"{name} {accuracy:.2f}" for name, accuracy in record["alignment"].items())
        lines.append(f"right source word, by the corpus's alignment: {found}")
    return "\n".join(lines)


def roles_of(name: str, roles: list[dict[str, Any]]) -> str:
    """Name the roles of a head, or in brackets the statistic that exceeds its baseline most."""
    kind, _, place = name.partition(" ")
    layer, head = (int(number) - 1 for number in place.split("."))
    own = [role for role in roles if role["kind"] == kind]
    held = [role for role in own if role["heads"][layer][head]]
    nearest = max(own, key=lambda role: role["scores"][layer][head] - role["baseline"])
    found = ", ".join(
        f"{role['name']} {role['scores'][layer][head]:.2f} ({role['by']} {role['baseline']:.2f})"
        for role in held or [nearest]
    )
    return found if held else f"[{found}]"


# Figures --------------------------------------------------------------------------------------------------------------

COLUMNS = 4
"""Number of maps side by side."""

STYLES = {"by loss": (DARK, "s--"), "by gradient": (ACCENT, "^-"), "by loss, reversed": (LIGHT, "v-")}
"""Colour, marker and line of each order that is not random."""


@as_default_style
def maps_figure(record: dict[str, Any]) -> Figure:
    """Draw a grid for each statistic: a row for each layer, a column for each head, and the share in its cell.

    A frame marks the heads that have the role.
    """
    roles = record["roles"]
    n_lines, n_layers = -(-len(roles) // COLUMNS), len(roles[0]["scores"])
    figure = _NotebookFigure(figsize=(3.2 * COLUMNS, (0.4 * n_layers + 1.2) * n_lines), layout="constrained")
    places = figure.subplots(n_lines, COLUMNS, squeeze=False).reshape(-1)
    for axes in places[len(roles) :]:
        axes.set_axis_off()
    for axes, role in zip(places, roles):
        scores, frames = np.array(role["scores"]), np.argwhere(role["heads"])
        draw_matrix(axes, scores, 0, 1)
        for (layer, head), score in np.ndenumerate(scores):
            look: Any = {"ha": "center", "va": "center", "color": "black" if score > 0.5 else "white"}
            axes.text(head, layer, f"{score:.2f}", fontsize="x-small", **look)
        for layer, head in frames:
            axes.add_patch(Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=ACCENT, linewidth=3))
        axes.set_xticks(range(scores.shape[1]), [f"{head + 1}" for head in range(scores.shape[1])])
        axes.set_yticks(range(n_layers), [f"{role['kind']} {layer + 1}" for layer in range(n_layers)])
        axes.set_title(f"{role['name']}\n({role['by']}: {role['baseline']:.2f})", fontsize="medium")
    return figure


@as_default_style
def pruning_figure(record: dict[str, Any]) -> Figure:
    """Draw loss (nats per target token) and BLEU over the number of heads removed, a line for each order."""
    figure = _NotebookFigure(figsize=(8, 6.5), layout="constrained")
    loss_axes, bleu_axes = figure.subplots(2, sharex=True)
    n = len(record["heads"])
    for name, curve in record["curves"].items():
        colour, style = STYLES.get(name, ("0.7", "-"))
        shown = name if name in STYLES else "random orders" * (name == "random 0")
        look: Any = {"color": colour, "markersize": 4, "zorder": 3 if name in STYLES else 2}
        loss_axes.plot(curve["losses"], style, **look)
        bleu_axes.plot(*zip(*curve["bleus"].items()), style, label=shown, **look)
    label(loss_axes, "Loss without some heads", y="nats per target token")
    label(bleu_axes, "BLEU without some heads, greedy search", x=f"heads removed, of {n}", y="BLEU")
    bleu_axes.legend()
    return figure
