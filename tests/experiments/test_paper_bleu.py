"""Compare the paper's BLEU with a computation from its definition that shares only the tokenizer with it."""

import random
import unicodedata

import numpy as np
import pytest
import sacremoses

from scratchformer.experiments.paper_bleu import moses_tokens, paper_bleu_and_gap, plain_quotes, split_at_hyphens
from scratchformer.text.bleu import corpus_scores
from support.bleu_by_hand import bleu, count_table

WORDS = (
    "der Hund sieht ein Haus und läuft über die Straße Nord-Süd-Dialog 16-jährige E-Mail a-b-c-d ü-ö-ä à-Å-é "
    "1.234,56 3,5-fache z.B. Dr. usw. ... … – -- - -ab ab- http://www.a-b.de/c-d?e=f&g info@a-b.de l'eau "
    "wasn't geht’s 5% $3 § <b> a|b [x] 北京-上海 Ärzte, Übel; (naja) richtig? ja!"
).split()
QUOTES = ["„{}“", "“{}”", '"{}"', "«{}»", "»{}«", "‟{}”", "‚{}‘", "'{}'", '„{}"']


def sentence(rng):
    words = rng.choices(WORDS, k=rng.randint(0, 14))
    if words and rng.random() < 0.5:
        index = rng.randrange(len(words))
        words[index] = rng.choice(QUOTES).format(words[index])
    return " ".join(words) + rng.choice(["", ".", " .", "!"])


def garbled(text, rng):
    """A translation of realistic quality: some words are missing or wrong, some quotes and hyphens are others."""
    words = [rng.choice(WORDS) if rng.random() < 0.15 else word for word in text.split() if rng.random() < 0.93]
    text = " ".join(words)
    return "".join(
        rng.choice('"„“') if char in '"„“' else " " if char == "-" and rng.random() < 0.2 else char for char in text
    )


@pytest.fixture(scope="module")
def pairs():
    """A thousand hypotheses and their references; some of both are empty."""
    rng = random.Random(0)
    references = [sentence(rng) for _ in range(1000)]
    return ["" if rng.random() < 0.02 else garbled(text, rng) for text in references], references


# From the definition --------------------------------------------------------------------------------------------------


def is_double_quote(char):
    name = unicodedata.name(char, "")
    return name == "QUOTATION MARK" or "QUOTATION MARK" in name and "DOUBLE" in name


def split(text):
    """Byte by byte: split at a hyphen between two non-blank bytes, unless the first belongs to another match."""
    data, parts, taken = text.encode(), [], -1
    for i in range(len(data)):
        is_split = (
            data[i : i + 1] == b"-"
            and 0 < i < len(data) - 1
            and i - 1 > taken
            and data[i - 1 : i].strip()
            and data[i + 1 : i + 2].strip()
        )
        if is_split:
            taken = i + 1
        parts.append(b" ##AT##-##AT## " if is_split else data[i : i + 1])
    return b"".join(parts).decode()


MOSES = {language: sacremoses.MosesTokenizer(lang=language) for language in ("de", "fr", "en")}


def with_plain_quotes(text):
    return "".join('"' if is_double_quote(char) else char for char in text)


def tokens_of(text, language):
    return [part for token in MOSES[language].tokenize(with_plain_quotes(text)) for part in split(token).split()]


def defined(hypotheses, references):
    """BLEU of lists of tokens from its definition -> score, precisions, brevity penalty, lengths"""
    counts = count_table(hypotheses, references).sum(axis=0)
    matches, written, r = counts[:4], counts[4:8], counts[8]
    penalty = min(1, np.exp(1 - r / max(1, written[0])))
    return bleu(counts), 100 * matches / np.maximum(written, 1), penalty, written[0], r


@pytest.mark.parametrize(
    "language, part", [("de", slice(None)), ("fr", slice(0, 100)), ("en", slice(100, 200)), ("de", slice(3, 4))]
)
def test_the_score_and_each_step_of_the_gap_are_their_definitions(pairs, language, part):
    hypotheses, references = (lines[part] for lines in pairs)
    moses = MOSES[language].tokenize

    def of(tokenize):
        return defined(*([tokenize(line) for line in lines] for lines in (hypotheses, references)))

    start = corpus_scores(hypotheses, references).bleu
    paper, steps = paper_bleu_and_gap(start, hypotheses, references, language)
    bleu, precisions, penalty, c, r = of(lambda line: tokens_of(line, language))
    assert paper.bleu == pytest.approx(bleu, rel=1e-12, abs=1e-12)
    assert paper.precisions == pytest.approx(precisions, rel=1e-12)
    assert paper.brevity_penalty == pytest.approx(penalty, rel=1e-12)
    assert (paper.hypothesis_length, paper.reference_length) == (c, r)
    cut, plain = of(moses)[0], of(lambda line: moses(with_plain_quotes(line)))[0]
    assert list(steps.values()) == pytest.approx([cut - start, plain - cut, bleu - plain], abs=1e-9)
    if part == slice(None):
        assert 20 < paper.bleu < 80 and penalty < 1, "neither trivial case"
        assert min(map(abs, steps.values())) > 0.01, "every step does something"


# The steps ------------------------------------------------------------------------------------------------------------


def test_hyphens():
    assert split_at_hyphens(["rich-text format", "a-b-c", "a-ü-c", "a - b", "-5 ab-"]) == [
        "rich ##AT##-##AT## text format",
        "a ##AT##-##AT## b-c",
        "a ##AT##-##AT## ü ##AT##-##AT## c",
        "a - b",
        "-5 ab-",
    ]


def test_moses_tokens():
    assert moses_tokens(['Er sagte: "Am 3. Mai, z. B. um 5,5 Uhr" & ging.', ""], "de") == [
        "Er sagte : &quot; Am 3. Mai , z. B. um 5,5 Uhr &quot; &amp; ging .",
        "",
    ]
    assert moses_tokens(["Hunde, Katzen usw."], "de") == ["Hunde , Katzen usw."]  # "usw ." in Moses since November 2018
    assert moses_tokens(["l'eau n'est pas l’eau."], "fr") == ["l&apos; eau n&apos; est pas l ’ eau ."]


def test_quotes_and_the_apostrophe():
    assert plain_quotes(["„a“ “b” »c« «d» ‟e”", "geht’s ‚f‘"]) == ['"a" "b" "c" "d" "e"', "geht’s ‚f‘"]


def test_case_and_hyphens_count_and_nothing_is_smoothed():
    hypothesis, reference = ["Ein reich-haltiger Text ist da"], ["Ein reich-haltiges Buch war hier"]
    paper, _ = paper_bleu_and_gap(0.0, hypothesis, reference)
    assert paper.precisions == pytest.approx([100 * 3 / 7, 100 * 2 / 6, 20, 0]) and paper.bleu == 0
    assert paper_bleu_and_gap(0.0, ["der Hund sieht ein Haus ."], ["Der Hund sieht ein Haus ."])[0].bleu < 80
