"""Score translations by BLEU (Papineni et al. 2002) and chrF (Popović 2015), as sacreBLEU computes them.

A BLEU score is only meaningful together with its tokenization and smoothing, so every score comes with sacreBLEU's
signature. The paper's own scores (§6.1) come from another script, which `experiments.paper_bleu` reproduces.
"""

import re
from typing import Any, NamedTuple

from scratchformer.errors import UserError, require_list

TOKENIZERS = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "lzh", "cn"),
    "ja-mecab": ("ja", "jpn", "jp"),
    "ko-mecab": ("ko", "kor"),
    "char": ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"),
}
"""sacreBLEU's tokenizer -> the codes of the languages that it is for. All other languages have 13a."""


class Scores(NamedTuple):
    """The scores of a set of translations (hypotheses) against one reference each.

    bleu, chrf       from 0 to 100
    length_ratio     hypothesis tokens / reference tokens
    brevity_penalty  1 if length_ratio >= 1, else exp(1 - 1 / length_ratio)
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    brevity_penalty: float
    length_ratio: float
    n_sentences: int


def bleu_metric(language: str) -> Any:
    """sacreBLEU's BLEU with the tokenizer for a language, whose code may name a country, as in zh_TW.

    Japanese and Korean are cut into characters where `pip install 'sacrebleu[ja,ko]'` has not been run.
    """
    from sacrebleu.metrics import BLEU  # imported here: it takes 0.1 s, and most commands do not score

    code = re.split("[-_]", language.lower())[0]
    name = next((name for name, codes in TOKENIZERS.items() if code in codes), "13a")
    try:
        return BLEU(tokenize=name)
    except (RuntimeError, AssertionError):  # MeCab is not installed, or with another dictionary
        return BLEU(tokenize="char")


def corpus_scores(hypotheses: list[str], references: list[str], language: str = "") -> Scores:
    """Compute corpus BLEU (cased, exponential smoothing) and chrF of plain, detokenized text in this language."""
    from sacrebleu.metrics import CHRF

    require_pairs(hypotheses, references)
    bleu, chrf = bleu_metric(language), CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    return Scores(
        bleu=bleu_score.score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score.score,
        chrf_signature=str(chrf.get_signature()),
        brevity_penalty=bleu_score.bp,
        length_ratio=bleu_score.ratio,
        n_sentences=len(hypotheses),
    )


def doubts(references: list[str], language: str = "") -> str:
    """Say in a line why the BLEU score against these references means little; mostly there is nothing to say."""
    tokenizer = bleu_metric(language).tokenizer
    n_long = sum(len(tokenizer(reference).split()) >= 4 for reference in references)
    if n_long >= len(references) / 10:
        return ""
    used = tokenizer.signature()
    name = "; for a language without spaces, set data.target_language" if used == "13a" else ""
    return (
        f"BLEU means little: it counts up to four tokens in a row, and {n_long} of {len(references)} references "
        f"have four (tok:{used}); compare by chrF{name}"
    )


def require_pairs(hypotheses: list[str], references: list[str]) -> None:
    """Refuse to score nothing, or translations without as many references."""
    require_list(hypotheses)
    require_list(references)
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} translations cannot be scored against {len(references)} references")
    if not hypotheses:
        raise UserError("no translations to score")
