"""Which attention heads have a role that can be named? Statistics of their weights, beside heads that know nothing.

Roles after Voita et al. 2019 ("Analyzing Multi-Head Self-Attention"), who look for heads that attend to a neighbour,
and after Figures 3 to 5 of the paper: distant words, and what a pronoun stands for. Each statistic has a bar: 0.5 for
attending to a place, uniform weights for distant words, the diagonal for alignment, a random choice for pronouns. A
head has the role only if it exceeds the bar by more than chance allows among so many heads (`Roles.z`).

The weights are those of `heads.sentence_attention`: the model reads source and reference. A position of the decoder is
named here by the piece that it has just read.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Iterator, NamedTuple, Sequence

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.experiments import heads
from scratchformer.experiments.heads import SentenceAttention
from scratchformer.experiments.statistics import mean_and_error
from scratchformer.text.bundled import Example, words

MOSTLY = 0.5
"""The bar for attending to a position. Voita et al. call a head positional from 0.9."""

FAR = 5
"""A word more than this many words away is far."""

ERROR_RATE = 0.05
"""The probability that chance alone gives a role to any head."""


class Role(NamedTuple):
    """A statistic of every head of one kind.

    kind      "encoder", "decoder" (self-attention) or "cross"
    name      what is measured, see `observations` and `heads.PRONOUN_VIEWS`
    scores    (N, H), 0 to 1
    errors    (N, H): the standard error of score - bar, over sentences
    baseline  the score of a head that has learnt nothing
    by        how such a head attends: uniform, diagonal or random choice
    bar       the score that a head must exceed
    """

    kind: str
    name: str
    scores: np.ndarray
    errors: np.ndarray
    baseline: float
    by: str
    bar: float


class Roles(NamedTuple):
    """All statistics.

    roles              see Role
    distances          how many words away a head attends in the mean, (N, H) for "encoder" and "decoder"
    uniform_distances  the same of uniform weights, a number each
    """

    roles: list[Role]
    distances: dict[str, np.ndarray]
    uniform_distances: dict[str, float]

    @property
    def n_tried(self) -> int:
        """How many times a head was looked at."""
        return sum(role.scores.size for role in self.roles)

    @property
    def z(self) -> float:
        """By how many standard errors a score must exceed its bar."""
        return corrected_z(self.n_tried)

    def heads_with(self, role: Role) -> np.ndarray:
        """Which heads have the role: (N, H) bool"""
        return role.scores - role.bar > self.z * role.errors


def corrected_z(n_tried: int) -> float:
    """How many standard errors any of so many numbers exceeds its expectation by with a probability of only ERROR_RATE
    (one-sided, corrected after Bonferroni)."""
    return NormalDist().inv_cdf(1 - ERROR_RATE / n_tried)


def roles_of_heads(
    translator: Translator, examples: Sequence[Example], annotated: bool, pairs: Sequence[Example] = ()
) -> Roles:
    """The statistics of all heads on these sentence pairs, at least two.

    annotated  whether the examples have alignments; without them, there is no role of cross-attention but the end
    pairs      minimal pairs with pronouns; without them, there is no role in what a pronoun stands for
    """
    found: dict[tuple[str, str, str], list[Observation]] = {}
    distances: dict[str, list[Distances]] = {"encoder": [], "decoder": []}
    for example in examples:
        attention = heads.sentence_attention(translator, example)
        for kind, name, by, observation in observations(attention, example if annotated else None):
            found.setdefault((kind, name, by), []).append(observation)
        for kind, of_kind in distances.items():
            of_kind.append(distances_of(attention, kind))
    for kind, name, by, observation in pronoun_observations(translator, pairs):
        found.setdefault((kind, name, by), []).append(observation)
    roles = [summary(*names, of_role) for names, of_role in found.items()]
    sums = {kind: Distances(*(np.sum(parts, axis=0) for parts in zip(*of_kind))) for kind, of_kind in distances.items()}
    return Roles(
        roles,
        {kind: each.weighted / each.weight for kind, each in sums.items()},
        {kind: each.uniform_weighted / each.uniform_weight for kind, each in sums.items()},
    )


# What is seen in one sentence -----------------------------------------------------------------------------------------


class Observation(NamedTuple):
    """What was counted in one sentence or minimal pair.

    hits      how often each head did what the role says, (N, H)
    baseline  how often a head that has learnt nothing would have
    bar       how often it must at least
    cases     in how many cases it could
    """

    hits: np.ndarray
    baseline: float
    bar: float
    cases: float


def summary(kind: str, name: str, by: str, seen: Sequence[Observation]) -> Role:
    """The ratio of the sums over sentences, with the standard error of its excess over the bar."""
    hits, baseline, bar, cases = (np.array(values, float) for values in zip(*seen))  # (n, N, H), (n,), (n,), (n,)
    _, errors = mean_and_error(hits - bar[:, None, None], cases)
    n = cases.sum()
    return Role(kind, name, hits.sum(axis=0) / n, errors, float(baseline.sum() / n), by, float(bar.sum() / n))


def observations(attention: SentenceAttention, example: Example | None) -> Iterator[tuple[str, str, str, Observation]]:
    """All that is observed in a sentence -> kind, name of the role, what a head does that has learnt nothing

    previous, same, next token; sentence start, sentence end    share of the rows that attend most to this position
    words over 5 away                                           share of the weight on them
    alignment                                                   share of the aligned words whose translation is found
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
        yield kind, name, "uniform", Observation(hits, float((1 / n_keys[asked]).sum()), MOSTLY * count, count)
    for kind in ("encoder", "decoder"):
        weights, apart, n_keys = word_distances(attention, kind)
        far = apart > FAR
        uniform = float((far / n_keys).sum())
        hits = (weights * far).sum(axis=(-2, -1))
        yield kind, f"words over {FAR} away", "uniform", Observation(hits, uniform, uniform, float(len(apart)))
    if example is not None:
        right = heads.right_choices(heads.aligned_words(attention.cross, attention), example)  # (N, H)
        lengths = len(words(example.target)), len(words(example.source))
        diagonal = float(heads.right_choices(heads.diagonal_alignment(*lengths), example))
        yield "cross", "alignment", "diagonal", Observation(right, diagonal, diagonal, heads.n_aligned(example))


def word_distances(attention: SentenceAttention, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of self-attention, for the R rows that belong to a word: the weights (N, H, R, keys), how many words each key is
    away (R, keys), -1 for </s>, <s> and what a row cannot see, and how many keys it has (R, 1)."""
    word, n_keys = attention.source_word, np.full(len(attention.source_word), len(attention.source_word))
    if kind == "decoder":  # it reads a piece a step after it was written
        word = np.concatenate([[-1], attention.target_word[:-1]])
        n_keys = np.arange(1, len(word) + 1)
    apart = np.where(word >= 0, np.abs(word[:, None] - word), -1)
    apart[np.arange(len(word)) >= n_keys[:, None]] = -1
    rows = word >= 0
    return getattr(attention, kind)[:, :, rows], apart[rows], n_keys[rows, None]


class Distances(NamedTuple):
    """Sums over one sentence: weight times distance and weight on words (N, H), and both for uniform weights."""

    weighted: np.ndarray
    weight: np.ndarray
    uniform_weighted: float
    uniform_weight: float


def distances_of(attention: SentenceAttention, kind: str) -> Distances:
    """The sums over one sentence."""
    weights, apart, n_keys = word_distances(attention, kind)
    is_word, apart = apart >= 0, np.maximum(apart, 0)
    return Distances(
        (weights * apart).sum(axis=(-2, -1)),
        (weights * is_word).sum(axis=(-2, -1)),
        float((apart / n_keys).sum()),
        float((is_word / n_keys).sum()),
    )


def pronoun_observations(
    translator: Translator, pairs: Sequence[Example]
) -> Iterator[tuple[str, str, str, Observation]]:
    """For each of `heads.PRONOUN_VIEWS` and each minimal pair: did a head attend more to the right noun in both?

    A random choice is right in a quarter of the pairs. Attention by position alone is right in none.
    """
    weights = [heads.pronoun_weights(heads.sentence_attention(translator, each), each) for each in pairs]
    for view in heads.PRONOUN_VIEWS if pairs else ():
        kind, _, name = view.partition(", ")
        right = np.array([each[view][..., 0] > each[view][..., 1] for each in weights])  # (examples, N, H)
        for both in heads.both_right(right, pairs):
            yield kind, name, "random choice", Observation(both, 0.25, 0.25, 1)


# All heads together ---------------------------------------------------------------------------------------------------


def alignment_accuracies(translator: Translator, examples: Sequence[Example]) -> dict[str, float]:
    """How often the right source word is found (`heads.AlignmentScore.accuracy`), by attention and by baselines."""
    found: dict[str, list[np.ndarray]] = {"attention of the last layer": [], "rollout": [], "diagonal": []}
    for example in examples:
        attention = heads.sentence_attention(translator, example)
        found["attention of the last layer"].append(heads.aligned_words(attention.cross[-1].mean(axis=0), attention))
        found["rollout"].append(heads.aligned_words(heads.rollout(attention).source, attention))
        found["diagonal"].append(heads.diagonal_alignment(len(words(example.target)), len(words(example.source))))
    scores = {name: heads.alignment_score(chosen, examples).accuracy for name, chosen in found.items()}
    return scores | {"chance": heads.chance_accuracy(examples)}
