"""Roles of heads on made-up weights, their importance on a small untrained model, and `scratchformer heads`."""

import json
from pathlib import Path

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import head_report as report
from scratchformer.experiments import heads
from scratchformer.experiments.heads import SentenceAttention
from scratchformer.nn.head_gate import gated
from scratchformer.nn.loss import batch_loss
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import Example
from scratchformer.text.tokenizer import Tokenizer

# Roles ----------------------------------------------------------------------------------------------------------------

EXAMPLE = Example("a b c", "A B C", "", "", [[0, 0], [1, 2], [2, 1]], None)
WORD_OF = np.array([0, 1, 1, 2, -1])  # five pieces with </s>
UNIFORM = np.full((5, 5), 1 / 5)


def pointing(to):
    """Weights (5, 5) that are 1 where each row points to."""
    return np.eye(5)[np.array(to)]


def sentence(encoder=UNIFORM, decoder=None, cross=UNIFORM):
    """One layer with one head of each kind."""
    decoder = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None] if decoder is None else decoder
    return SentenceAttention(*(each[None, None] for each in (encoder, decoder, cross)), WORD_OF, WORD_OF)


def seen(attention, kind, name):
    [found] = [each for each in report.observations(attention, EXAMPLE) if each[:2] == (kind, name)]
    return found


@pytest.mark.parametrize(
    "kind, name, to, cases",
    [
        ("encoder", "previous token", [3, 0, 1, 2, 3], 4),
        ("encoder", "same token", [0, 1, 2, 3, 4], 5),
        ("encoder", "next token", [1, 2, 3, 4, 0], 4),
        ("encoder", "sentence end", [4, 4, 4, 4, 4], 5),
        ("decoder", "previous token", [0, 0, 1, 2, 3], 4),
        ("decoder", "same token", [0, 1, 2, 3, 4], 4),  # the first row has only one key
        ("decoder", "sentence start", [0, 0, 0, 0, 0], 4),
        ("cross", "sentence end", [4, 4, 4, 4, 4], 5),
    ],
)
def test_attention_to_a_position(kind, name, to, cases):
    found = seen(sentence(**{kind: pointing(to)}), kind, name)
    assert found.hits.tolist() == [[cases]] and found.cases == cases and found.bar == cases / 2
    n_keys = [2, 3, 4, 5] if kind == "decoder" else [5] * cases
    assert found.baseline == pytest.approx(sum(1 / n for n in n_keys))
    elsewhere = seen(sentence(**{kind: pointing([2, 0, 0, 1, 2])}), kind, name)
    assert elsewhere.hits.item() < cases


@pytest.mark.parametrize(
    "kind, to, far, hits, bar",
    [
        ("encoder", [3, 0, 0, 4, 0], 1, 1, 2 / 5),  # word 0 to word 2; 1 to 0; 2 to </s>
        ("decoder", [0, 1, 1, 1, 1], 0, 3, 1 / 3 + 1 / 4 + 3 / 5),  # reads <s>, and words 0, 1, 1, 2
    ],
)
def test_far_words(monkeypatch, kind, to, far, hits, bar):
    monkeypatch.setattr(report, "FAR", far)
    found = seen(sentence(**{kind: pointing(to)}), kind, f"words over {far} away")
    assert (found.hits.item(), found.cases, found.bar) == (hits, 4, pytest.approx(bar))


def test_alignment_is_compared_with_the_diagonal():
    found = seen(sentence(cross=pointing([0, 3, 3, 1, 4])), "cross", "alignment")  # words 0, 2, 1
    assert (found.hits.item(), found.bar, found.cases) == (3, 1, 3)
    assert "alignment" not in [each.name for each in report.observations(sentence(), EXAMPLE._replace(alignment=[]))]


def role_of(scores, n_heads=1):
    """Of sentences with one case each, for heads that all have these scores, and the bar 0.5."""
    hits = [np.full((1, n_heads), each) for each in scores]
    observed = [report.Observation("encoder", "previous token", "uniform", each, 0.1, 0.5, 1.0) for each in hits]
    [role] = report.roles_of_heads(observed)
    return role


def test_a_role_needs_more_than_chance():
    assert role_of([1] * 20)["heads"] == [[True]] and role_of([0.5] * 20)["heads"] == [[False]]
    weak = role_of([1] * 65 + [0] * 35)  # 3.1 standard errors above the bar
    assert (
        weak["scores"] == [[0.65]]
        and weak["heads"] == [[True]]
        and not any(role_of([1] * 65 + [0] * 35, n_heads=100)["heads"][0])
    )
    assert role_of([1])["heads"] == [[False]], "a single sentence says nothing about others"
    assert report.corrected_z(1) == pytest.approx(1.645, abs=1e-3)
    assert report.corrected_z(100) == pytest.approx(3.290, abs=1e-3)


# The text -------------------------------------------------------------------------------------------------------------

N, H = 2, 3
SOURCES = [*("the old dog sees a cat .", "a cat sees the dog .", "the dog .", "the cat hears a dog and the old dog .")]
TARGETS = [
    *("der alte hund sieht eine katze .", "eine katze sieht den hund .", "der hund .", "die katze hört zwei hunde .")
]
PAIRS = list(map(Example, SOURCES, TARGETS))


@pytest.fixture(scope="module")
def translator():
    config = ModelConfig(vocab_size=60, N=N, d_model=24, d_ff=16, h=H)
    model = Transformer(config, seed=0, dtype="float64")
    return Translator(model, Tokenizer.train([*SOURCES, *TARGETS], 60), extra_length=5)


@pytest.fixture(scope="module")
def text(translator):
    return report.text_of(translator, PAIRS, 100)


def test_the_text_is_the_first_pairs_that_are_short_enough(translator, text, monkeypatch):
    monkeypatch.setattr(report, "MAX_LENGTH", int(text.encoded.lengths[1]))
    short = report.text_of(translator, PAIRS, 2)
    assert short.examples == PAIRS[1:3] and short.n_tokens.tolist() == text.n_tokens[1:3].tolist()


def test_no_sentence_is_longer_than_the_table_of_positions(translator, text):
    longest = int(text.encoded.lengths.max())
    config = ModelConfig(vocab_size=60, N=1, d_model=24, d_ff=16, h=H, positions="learned", max_positions=longest - 1)
    learned = Translator(Transformer(config, seed=0), translator.tokenizer)
    fitting = report.text_of(learned, PAIRS, 100)
    assert fitting.encoded.lengths.max() < longest and len(report.sentence_losses(learned, fitting))


# Importance -----------------------------------------------------------------------------------------------------------


def test_the_losses_of_sentences_are_those_of_the_model(translator, text):
    for index, loss in enumerate(report.sentence_losses(translator, text)):
        batch = text.encoded.batch(np.array([index]))
        expected, _ = batch_loss(translator.model, batch.inputs, batch.targets)
        assert loss == pytest.approx(float(expected), rel=1e-9)


def test_a_head_has_the_number_of_its_name(translator, text):
    names = report.head_names(translator.model)
    assert names[0] == "encoder 1.1" and names[-1] == "cross 2.3" and len(names) == 3 * N * H
    without = report.without_each(translator, text, report.sentence_losses)
    assert without.shape == (len(text.encoded), 3 * N, H)
    for name, found in zip(names, without.reshape(len(text.encoded), -1).T):
        kind, place = name.split()
        layer, head = (int(number) - 1 for number in place.split("."))
        with gated([heads.attention_layers(translator.model)[kind][layer]]) as [gate]:
            gate.xi.data[head] = 0
            np.testing.assert_array_equal(found, report.sentence_losses(translator, text))


def test_gradients_of_gates_agree_with_finite_differences(translator, text):
    model, step = translator.model, 1e-5
    found = report.gate_gradients(translator, text)
    assert not model.store.grad.any()
    with gated(report.every_attention(model)) as gates:
        for gate, (row, head) in ((gates[row], (row, head)) for row in range(3 * N) for head in (0, H - 1)):
            losses = []
            for moved in (1 + step, 1 - step):
                gate.xi.data[head] = moved
                losses.append(report.sentence_losses(translator, text))
            gate.xi.data[head] = 1
            expected = (losses[0] - losses[1]) / (2 * step)
            np.testing.assert_allclose(found[:, row, head], expected, rtol=1e-5, atol=1e-8)


def test_the_absolute_value_is_taken_of_each_sentence(translator, text):
    signed = report.gate_gradients(translator, text)
    assert (np.sign(signed).min(axis=0) != np.sign(signed).max(axis=0)).any(), "they would be the same anyway"
    alone = [report.gradient_importance(translator, report.text_of(translator, [each], 1)) for each in PAIRS]
    together = report.gradient_importance(translator, text)
    np.testing.assert_allclose(together, np.average(alone, axis=0, weights=text.n_tokens))


def test_a_curve_begins_with_all_heads_and_ends_with_none(translator, text):
    order = np.random.default_rng(0).permutation(3 * N * H).tolist()
    curve = report.pruning_curve(translator, text, order, {0, len(order)})
    n_tokens, intact = text.n_tokens.sum(), report.sentence_losses(translator, text).sum()
    assert curve["losses"][0] == pytest.approx(intact / n_tokens) and len(curve["losses"]) == len(order) + 1
    translations = translator.translate(SOURCES, beam=1)
    with gated(report.every_attention(translator.model)) as gates:
        report.close_only(gates, range(3 * N * H))
        nothing = report.sentence_losses(translator, text).sum() / n_tokens
        bleu = report.greedy_bleu(translator, text)
        assert translator.translate(SOURCES, beam=1) != translations
        report.close_only(gates, [])
        assert translator.translate(SOURCES, beam=1) == translations
    assert curve["losses"][-1] == pytest.approx(nothing) and curve["bleus"][len(order)] == bleu
    assert set(curve["bleus"]) == {0, len(order)}
    second = report.pruning_curve(translator, text, order[:1])["losses"][1]
    without = report.without_each(translator, text, report.sentence_losses).sum(axis=0)
    assert second == pytest.approx(without.reshape(-1)[order[0]] / n_tokens)


def test_the_least_important_head_is_removed_first(translator, text):
    orders = report.orders_of_removal(translator, text)
    importance = report.gradient_importance(translator, text).reshape(-1)
    assert np.all(np.diff(importance[orders["by gradient"]]) >= 0)
    assert orders["by loss"] == orders["by loss, reversed"][::-1] and len(orders) == 3 + report.N_RANDOM
    assert {tuple(sorted(order)) for order in orders.values()} == {tuple(range(3 * N * H))}


def test_means_are_weighted_and_their_errors_are_those_of_repeated_draws():
    random = np.random.default_rng(0)
    cases = random.integers(1, 9, (4000, 50))
    values = 3 * cases + random.normal(size=cases.shape) * cases
    found = [report.mean_and_error(*each) for each in zip(values, cases)]
    means, errors = np.array(found).T
    assert means[0] == pytest.approx(values[0].sum() / cases[0].sum())
    assert errors.mean() == pytest.approx(means.std(), rel=0.05)
    assert report.mean_and_error(np.ones((1, 2)), np.ones(1))[1].tolist() == [np.inf, np.inf]


# The command ----------------------------------------------------------------------------------------------------------

NAMES = ["encoder 1.1", "encoder 1.2", "decoder 1.1", "decoder 1.2", "cross 1.1", "cross 1.2"]
SHIPPED = Path(__file__).parents[2] / "data" / "tiny_model"


@pytest.fixture
def on_files(corpus):
    return "--source", corpus / "val.en", "--reference", corpus / "val.de", "--sentences", 20


def test_a_run_on_other_text_has_no_roles_that_need_annotations(cli, own_run, on_files):
    outcome = cli("heads", own_run.path, *on_files)
    assert outcome.code == 0
    assert "6 heads, 20 sentence pairs" in outcome.out and "only for the bundled corpus" in outcome.out
    found = [line[:11].strip() for line in outcome.out.splitlines()]
    assert [name for name in found if name in NAMES] == NAMES
    saved = [own_run.figures / "heads.png", own_run.figures / "pruning.png"]
    assert outcome.out.splitlines()[-2:] == [str(path) for path in saved] and all(path.stat().st_size for path in saved)


@pytest.mark.slow
def test_the_shipped_model(cli):
    """Its cross-attention aligns, no head resolves pronouns, and removal in order of importance costs least."""
    found = json.loads(cli("heads", SHIPPED, "--sentences", 60, "--json").out)
    roles = {(role["kind"], role["name"]): role for role in found["roles"]}
    assert roles["cross", "alignment"]["heads"][1][2] and not any(roles["cross", "alignment"]["heads"][0])
    assert roles["cross", "alignment"]["scores"][1][2] > 0.9
    assert not any(any(row) for key, role in roles.items() for row in role["heads"] if "nouns" in key[1])
    important = sorted(found["heads"], key=lambda name: found["heads"][name]["rise"])[-4:]
    assert {name[:7] for name in important} == {"cross 2"}
    assert all(curve["bleus"].keys() == {"0", "6", "12", "18", "24"} for curve in found["curves"].values())
    losses = {name: curve["losses"][6] for name, curve in found["curves"].items()}
    assert losses["by loss"] < min(losses[name] for name in losses if name.startswith("random"))
    assert losses["by loss, reversed"] > max(losses[name] for name in losses if name.startswith("random"))
