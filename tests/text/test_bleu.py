import math

import pytest
from sacrebleu.tokenizers import tokenizer_char, tokenizer_ja_mecab, tokenizer_ko_mecab

from scratchformer.errors import UserError
from scratchformer.text.bleu import bleu_metric, corpus_scores, doubts

REFERENCES = ["The quick brown fox jumps over the lazy dog.", "Ein Hund läuft über die Straße."]


def test_perfect_translations():
    scores = corpus_scores(REFERENCES, REFERENCES)
    assert scores.bleu == pytest.approx(100) and scores.chrf == pytest.approx(100)
    assert (scores.brevity_penalty, scores.length_ratio, scores.n_sentences) == (1, 1, 2)
    assert scores.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert scores.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert corpus_scores([text.lower() for text in REFERENCES], REFERENCES).bleu < 90, "case counts"
    empty = corpus_scores(["", ""], REFERENCES)
    assert empty.bleu == empty.chrf == empty.length_ratio == 0


def test_a_score_worked_out_by_hand():
    # Precisions 5/5, 4/4, 3/3, 2/2; 5 tokens against 6.
    scores = corpus_scores(["the cat sat on the"], ["the cat sat on the mat"])
    assert scores.length_ratio == pytest.approx(5 / 6)
    assert scores.brevity_penalty == pytest.approx(math.exp(1 - 6 / 5))
    assert scores.bleu == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_bleu_is_computed_from_the_counts_of_the_corpus():
    # Unigrams 7/8, bigrams 4/6, trigrams 2/4, 4-grams 1/2 (the first sentence has one, the second's is wrong).
    scores = corpus_scores(["a b c d", "e f x g"], ["a b c d", "e f y g"])
    assert scores.bleu == pytest.approx(100 * (7 / 8 * 4 / 6 * 2 / 4 * 1 / 2) ** (1 / 4))


@pytest.mark.parametrize(
    "translations, references, complaint",
    [(REFERENCES[:1], REFERENCES, "1 translations .* 2 references"), ([], [], "no translations")],
)
def test_nothing_to_compare(translations, references, complaint):
    with pytest.raises(UserError, match=complaint):
        corpus_scores(translations, references)


# --- the tokenizer of the language

CHINESE = ["我爱你们大家", "他今天不来了吗", "好"]
WITHOUT_SPACES = ["th", "lo", "km", "my", "bo", "tha"]


@pytest.mark.parametrize("language", ["zh", "ja", "ko", *WITHOUT_SPACES])
def test_perfect_translations_without_spaces(language):
    assert corpus_scores(CHINESE, CHINESE, language).bleu == pytest.approx(100)
    assert corpus_scores(CHINESE, CHINESE, "de").bleu == 0


def test_a_score_of_chinese_worked_out_by_hand():
    scores = corpus_scores(["我爱你们大"], ["我爱你们大家"], "zh")  # precisions 5/5, 4/4, 3/3, 2/2; 5 tokens against 6
    assert scores.bleu == pytest.approx(100 * math.exp(1 - 6 / 5)) and "|tok:zh|" in scores.bleu_signature


@pytest.mark.parametrize(
    "tokenizer, languages",
    [
        ("zh", ["zh", "ZH", "zh-cn", "zh_TW", "zho", "cmn", "yue"]),
        ("char", WITHOUT_SPACES),
        ("13a", ["de", "en", "de-AT", "", "a", "xx", "zha", "jav", "kor2", "chinese"]),
    ],
)
def test_the_language_decides_the_tokenizer(tokenizer, languages):
    assert {bleu_metric(language).tokenizer.signature() for language in languages} == {tokenizer}


@pytest.mark.parametrize(
    "module, name, languages",
    [
        (tokenizer_ja_mecab, "TokenizerJaMecab", ["ja", "jpn", "ja_JP"]),
        (tokenizer_ko_mecab, "TokenizerKoMecab", ["ko", "kor", "ko-KR"]),
    ],
)
def test_japanese_and_korean_are_cut_into_characters_without_mecab(monkeypatch, module, name, languages):
    monkeypatch.setattr(module, "MeCab", None)
    assert {bleu_metric(language).tokenizer.signature() for language in languages} == {"char"}

    class Installed(tokenizer_char.TokenizerChar):
        def signature(self):
            return name

    monkeypatch.setattr(module, name, Installed)
    assert {bleu_metric(language).tokenizer.signature() for language in languages} == {name}


# --- doubts


@pytest.mark.parametrize(
    "references, language, complaint",
    [
        (REFERENCES, "de", ""),
        (CHINESE, "zh", ""),
        (CHINESE, "a", "0 of 3 references have four (tok:13a); compare by chrF; for a language without spaces, set "),
        (["ja"] * 20, "de", "0 of 20 references have four (tok:13a)"),
        (["ja"] * 18 + REFERENCES, "de", ""),
        (["好"] * 20, "zh", "0 of 20 references have four (tok:zh); compare by chrF"),
    ],
)
def test_references_that_are_too_short_for_bleu(references, language, complaint):
    found = doubts(references, language)
    assert bool(found) == bool(complaint) and complaint in found
    assert "without spaces" not in found or "tok:13a" in complaint
