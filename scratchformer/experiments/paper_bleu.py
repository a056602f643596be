"""BLEU as the paper measured it, which differs from sacreBLEU's score of the same translations.

The paper's English-German scores (§6.1, Table 2) were computed by a shell script, `get_ende_bleu.sh` of tensor2tensor:

1. the Moses tokenizer (tokenizer.perl -l de) splits text into tokens and escapes some: `"` becomes `&quot;`;
2. words are split at hyphens: `rich-text` becomes the three tokens `rich ##AT##-##AT## text`;
3. multi-bleu.perl counts: cased, one precision for the whole corpus, no smoothing.

Before step 1, all Unicode quotation marks of the reference had been replaced by plain `"` (M. Popel, 2018-04-12, issue
317 of tensor2tensor). A later version of the script (commit fc9335c0, April 2018) also replaces other punctuation; the
paper is older, so this is left out here, and the signatures say "punct:kept".

Differs: we replace the quotation marks on both sides, while the source mentions only the reference. Otherwise every
quotation mark of a system that has learnt to write `„` would count as wrong.

sacreBLEU's rule 13a makes other tokens and other n-grams. On newstest2014, tensor2tensor's base model has 29.02
by the script and 27.52 by sacreBLEU (issue 317); splitting at hyphens alone adds 0.7 to 1, since two correct words
joined by a hyphen are three correct tokens instead of one. So compare a score of this module with the paper's, and
sacreBLEU's with those of other systems. The text must be plain: tokenized text would be escaped a second time.

The tokenizer is sacremoses, a port of Moses as it was before November 2018: the last word of a line keeps its period if
it is an abbreviation, as in "usw." (mosesdecoder, pull request 204, changed that). The counting is sacreBLEU's without
tokenizer and smoothing, which is that of multi-bleu.perl. The tests compare the result with its definition.
"""

import re
from typing import Any, NamedTuple

from scratchformer.text.bleu import require_pairs

QUOTATION_MARKS = "„“”‟«»"
"""The double ones. Single ones stay as they are, since `’` is also the apostrophe."""


class PaperScore(NamedTuple):
    """The paper's BLEU score of a corpus.

    bleu, precisions  (of 1 to 4 tokens) from 0 to 100
    brevity_penalty   1 if the hypotheses are at least as long as the references, else exp(1 - references / hypotheses)
    ..._length        in tokens, of the whole corpus
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
    """Score plain, detokenized text as the paper's script does, and explain the difference from sacreBLEU's score.

    language: of the text: de, fr, en, ...; for one that Moses does not know, its rules for English apply

    Returns the score, and step -> BLEU that it adds, in order. The sum is the difference between the two scores; the
    share of a step depends on its place in this order.
    """
    require_pairs(hypotheses, references)
    tokens = [moses_tokens(lines, language) for lines in (hypotheses, references)]
    quoted = [moses_tokens(plain_quotes(lines), language) for lines in (hypotheses, references)]
    split = multi_bleu(*map(split_at_hyphens, quoted))
    paper = PaperScore(
        split.score, tuple(split.precisions), split.bp, split.sys_len, split.ref_len, signature(language)
    )
    reached = {
        "Moses tokens, unsmoothed": multi_bleu(*tokens).score,
        "plain quotation marks": multi_bleu(*quoted).score,
        "words cut at hyphens": paper.bleu,
    }
    before = [sacrebleu_score, *reached.values()]
    return paper, {step: score - previous for (step, score), previous in zip(reached.items(), before)}


def plain_quotes(lines: list[str]) -> list[str]:
    """Replace typographic quotation marks by straight ones."""
    return [re.sub(f"[{QUOTATION_MARKS}]", '"', line) for line in lines]


def moses_tokens(lines: list[str], language: str) -> list[str]:
    """Tokenize each line; the tokens are escaped and separated by spaces."""
    from sacremoses import MosesTokenizer  # imported here: it takes 0.4 s, and most commands do not score

    tokenizer = MosesTokenizer(language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def split_at_hyphens(lines: list[str]) -> list[str]:
    r"""Apply Perl's s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g to each line.

    Matches do not overlap: in a-b-c the b belongs to the first match, so the second hyphen stays. Perl matches bytes
    here: an ü consists of two, one for each match, so a-ü-c is split twice.
    """
    return [re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", line.encode()).decode() for line in lines]


def multi_bleu(hypotheses: list[str], references: list[str]) -> Any:
    """Compute BLEU of tokenized lines, as sacreBLEU's score object; 0 if there is no correct n-gram of some length."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(hypotheses, [references])


def signature(language: str) -> str:
    """Everything a score depends on, in the format of sacreBLEU's signatures."""
    import sacrebleu
    import sacremoses

    return (
        f"nrefs:1|case:mixed|eff:no|quotes:plain|punct:kept|tok:moses-{language}|escape:yes|hyphens:cut|"
        f"smooth:none|version:{sacrebleu.__version__}+sacremoses.{sacremoses.__version__}"
    )
