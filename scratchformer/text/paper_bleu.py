"""BLEU as the paper measured it: another score than sacreBLEU's, of the same translations.

The paper's English-German scores (§6.1, Table 2) were taken with a shell script, `get_ende_bleu.sh` of tensor2tensor:

1. the Moses tokenizer (tokenizer.perl -l de) cuts text into tokens and escapes some: `"` becomes `&quot;`;
2. words are cut at hyphens: `rich-text` becomes the three tokens `rich ##AT##-##AT## text`;
3. multi-bleu.perl counts, cased, one precision for the corpus, nothing smoothed.

Besides, all Unicode quotation marks of the reference had been made plain `"` before 1 (M. Popel, 2018-04-12, issue 317
of tensor2tensor). A later version of the script (commit fc9335c0, April 2018) also runs
replace-unicode-punctuation.perl before 1, which makes `’` a `'` and `…` three dots. The paper is older: here it is left
out, and signatures say "punct:kept".

Differs: we make the quotation marks plain on both sides, while the evidence speaks of the reference alone. Else all
those of a system that has learnt to write `„` would be wrong.

sacreBLEU's rule 13a makes other tokens, so it counts other n-grams. What that is worth, as published:

- tensor2tensor's base model on newstest2014: 29.02 by the script, 27.52 by sacreBLEU (issue 317, Popel);
- a big model of fairseq: 29.29 by tokens cut at hyphens, 28.6 by sacreBLEU (examples/scaling_nmt/README.md);
- cutting at hyphens alone is worth about 0.7 to 1 (issue 317, edunov): two words that are right and joined by a
  hyphen are three tokens that are right instead of one.

So a score of this module goes beside the paper's, and sacreBLEU's beside everybody else's. Text must be plain: in text
that is Moses tokens already, `&quot;` would be escaped once more.

The tokenizer is sacremoses, a port of Moses's; the counting is sacreBLEU's, which without its tokenizer and smoothing
is that of multi-bleu.perl. The tests compare the whole with a computation from the definition.
"""

import re
from typing import Any, NamedTuple

from scratchformer.text.bleu import require_pairs

QUOTATION_MARKS = "„“”‟«»"
"""Double ones. Single ones stay as they are, since `’` is the apostrophe, too."""


class PaperScore(NamedTuple):
    """bleu and precisions (of 1 to 4 tokens) from 0 to 100, lengths in tokens of the corpus.

    brevity_penalty: 1 if the hypotheses are at least as long as the references, else exp(1 - references / hypotheses).
    """

    bleu: float
    precisions: tuple[float, float, float, float]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    signature: str


def paper_bleu_and_gap(
    sacrebleu_score: float, hypotheses: list[str], references: list[str], language: str = "de"
) -> tuple[PaperScore, dict[str, float]]:
    """The BLEU of plain, detokenized text by the paper's script, and what leads to it from sacreBLEU's score:
    step -> BLEU that it adds, in order. The sum is the gap; a step's share depends on its place in this order.

    language: of the text: de, fr, en, ...; for one that Moses does not know, English rules hold

    Raises: UserError if there is nothing to score or the two lists differ in length.
    """
    require_pairs(hypotheses, references)
    tokens = [moses_tokens(lines, language) for lines in (hypotheses, references)]
    quoted = [moses_tokens(plain_quotes(lines), language) for lines in (hypotheses, references)]
    cut = multi_bleu(*map(cut_at_hyphens, quoted))
    paper = PaperScore(cut.score, tuple(cut.precisions), cut.bp, cut.sys_len, cut.ref_len, signature(language))
    reached = {
        "Moses tokens, unsmoothed": multi_bleu(*tokens).score,
        "plain quotation marks": multi_bleu(*quoted).score,
        "words cut at hyphens": paper.bleu,
    }
    before = [sacrebleu_score, *reached.values()]
    return paper, {step: score - previous for (step, score), previous in zip(reached.items(), before)}


def plain_quotes(lines: list[str]) -> list[str]:
    return [re.sub(f"[{QUOTATION_MARKS}]", '"', line) for line in lines]


def moses_tokens(lines: list[str], language: str) -> list[str]:
    """The tokens of each line, escaped, with a space between them."""
    from sacremoses import MosesTokenizer  # here: it takes 0.4 s, and most commands never score

    tokenizer = MosesTokenizer(language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def cut_at_hyphens(lines: list[str]) -> list[str]:
    r"""s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g on each line.

    Matches do not overlap: in a-b-c the b belongs to the first, and the second hyphen stays. Perl reads bytes here; an
    ü is two of them, one for each side, and a-ü-c is cut twice.
    """
    return [re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", line.encode()).decode() for line in lines]


def multi_bleu(hypotheses: list[str], references: list[str]) -> Any:
    """BLEU of lines of tokens, as sacreBLEU's score object. 0 if there is no right n-gram of some n."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(hypotheses, [references])


def signature(language: str) -> str:
    """All that a score depends on, in the manner of sacreBLEU's signatures."""
    import sacrebleu
    import sacremoses

    return (
        f"nrefs:1|case:mixed|eff:no|quotes:plain|punct:kept|tok:moses-{language}|escape:yes|hyphens:cut|"
        f"smooth:none|version:{sacrebleu.__version__}+sacremoses.{sacremoses.__version__}"
    )
