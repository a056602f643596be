"""Score translations by BLEU (Papineni et al. 2002) and chrF (Popović 2015), as sacreBLEU computes them.

A BLEU score is only meaningful together with its tokenization and smoothing, so every score comes with sacreBLEU's
signature. The paper's own scores (§6.1) come from another script, which `experiments.paper_bleu` reproduces.
"""

from typing import NamedTuple

from scratchformer.errors import UserError


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


def corpus_scores(hypotheses: list[str], references: list[str]) -> Scores:
    """Compute corpus BLEU (cased, 13a tokenization, exponential smoothing) and chrF of plain, detokenized text.

    Raises UserError if there is nothing to score or the two lists differ in length.
    """
    from sacrebleu.metrics import BLEU, CHRF  # imported here: it takes 0.1 s, and most commands do not score

    require_pairs(hypotheses, references)
    bleu, chrf = BLEU(), CHRF()
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


def require_pairs(hypotheses: list[str], references: list[str]) -> None:
    """Raises UserError unless there are translations, and as many references."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} translations cannot be scored against {len(references)} references")
    if not hypotheses:
        raise UserError("no translations to score")
