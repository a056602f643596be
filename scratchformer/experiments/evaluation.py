"""Score the translations of a run, and compare two systems: `scratchformer evaluate`.

Because translating may take long, the test set is checked and the output file opened
before it begins.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from scratchformer.config import DataConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError, printable
from scratchformer.experiments.paper_bleu import PaperScore, paper_bleu_and_gap
from scratchformer.files import whole_file
from scratchformer.preparation import is_prepared
from scratchformer.progress import tqdm
from scratchformer.tasks.task import Evaluation
from scratchformer.tasks.translation import read_corpus, validation_files
from scratchformer.text import bundled
from scratchformer.text.bleu import Scores, bleu_metric, corpus_scores, require_pairs
from scratchformer.text.corpora import ParallelFiles, find_split, plain_or_gz, read_lines, require_distinct
from scratchformer.training.run import RunDirectory, require_place

N_SAMPLES = 1000
"""Number of test sets that the bootstrap draws."""

SIGNIFICANT = 0.05
"""Below this p-value two systems are called different. sacreBLEU computes p as Moses did, a little too small: of pairs
of equally good systems, about one in ten is called different, not one in twenty."""

# The test set ---------------------------------------------------------------------------------------------------------


class TestSet(NamedTuple):
    """Sentences and their translations; `files` are those that it was read from, if there are any."""

    name: str
    source: list[str]
    reference: list[str]
    files: ParallelFiles | None = None


def find_test_set(data: DataConfig, source: Path | None, reference: Path | None) -> TestSet:
    """The given files; by default the test split of the run's data or, without one, what the run validates with."""
    if source and reference:
        require_distinct([("source", source), ("reference", reference)])
        return read_test_set(ParallelFiles(source, reference))
    if source or reference:
        raise UserError("a test set is two files: give both --source and --reference, or neither")
    if not data.names_text:
        return TestSet("the bundled corpus, test", *bundled.read_text("test")[:2])
    directory, languages = Path(data.directory), (data.source_language, data.target_language)
    if data.directory and any(plain_or_gz(directory / f"test.{language}") for language in languages):
        return read_test_set(find_split(directory, "test", *languages))
    if files := validation_files(data):
        return read_test_set(files)
    try:
        val = None if is_prepared(directory) and not data.files else read_corpus(data).val
    except UserError as error:
        raise UserError(f"{error}; give --source and --reference") from None
    if not val:
        raise UserError(
            f"{data.directory or data.train_source}: no test or validation text; give --source and --reference"
        )
    return TestSet("the pairs held out of the training text", val.source, val.target)


def texts_of(data: DataConfig) -> list[Path]:
    """The files from which a run's text is read; some may not exist."""
    languages = (data.source_language, data.target_language)
    names = [f"{split}.{language}" for split in ("train", "val", "test") for language in languages]
    return [*map(Path, data.files), *(Path(data.directory) / name for name in names if data.directory)]


def read_test_set(files: ParallelFiles) -> TestSet:
    """Read two files that have equally many lines, blank ones included."""
    source, target = map(read_lines, files)
    if len(source) != len(target):
        raise UserError(f"{files.source} has {len(source)} lines, {files.target} has {len(target)}")
    if not source:
        raise UserError(f"{files.source} and {files.target} are empty: no translations to score")
    return TestSet(os.path.abspath(files.source), source, target, files)


@contextmanager
def open_output(path: Path | None, texts: Sequence[Path] = ()) -> Iterator[Callable[[list[str]], None]]:
    """Open a file -> write(lines). The file gets its name when the block ends. Without a path, nothing is written.

    A file that exists, and a place in a run or a prepared corpus, are refused.
    """
    if path is None:
        yield lambda lines: None
        return
    if path.resolve() in [text.resolve() for text in texts]:
        raise UserError(f"{path}: is a text of the run or of the test set; write the output elsewhere")
    require_place(path)
    with whole_file(path) as file:
        yield lambda lines: file.writelines(f"{line}\n".encode() for line in lines)


# Scores ---------------------------------------------------------------------------------------------------------------


def assess(hypotheses: list[str], references: list[str], language: str = "de", with_paper: bool = False) -> Evaluation:
    """Compute sacreBLEU's scores of text in this language, and if asked for, the score by the paper's script.

    "gap" in the record: the steps that lead from sacreBLEU's score to that of the script, each with its change in BLEU
    """
    scores = corpus_scores(hypotheses, references, language)
    lines = [f"BLEU {scores.bleu:.2f}  ({scores.bleu_signature})", f"chrF {scores.chrf:.2f}  ({scores.chrf_signature})"]
    record: dict[str, Any] = {"paper_bleu": None, "paper_signature": None, "paper": None, "gap": None}
    if with_paper:
        paper, gap = paper_bleu_and_gap(scores.bleu, hypotheses, references, language)
        lines += paper_lines(scores, paper, gap, language)
        record = {"paper_bleu": paper.bleu, "paper_signature": paper.signature, "paper": paper._asdict(), "gap": gap}
    return Evaluation(scores._asdict() | record, "\n".join(lines))


def paper_lines(scores: Scores, paper: PaperScore, gap: dict[str, float], language: str) -> list[str]:
    """Write the score by the paper's script, and why it differs from sacreBLEU's."""
    precisions = "/".join(f"{precision:.1f}" for precision in paper.precisions)
    steps = ", ".join(f"{step} {round(change, 2) + 0.0:+.2f}" for step, change in gap.items())
    lines = [
        f"BLEU {paper.bleu:.2f} as the paper's script counts  ({paper.signature})",
        f"  precisions {precisions}, {paper.hypothesis_length} tokens against "
        f"{paper.reference_length}, brevity penalty {paper.brevity_penalty:.3f}",
        f"  from {scores.bleu:.2f} to {paper.bleu:.2f}: {steps}",
    ]
    if language != "de":
        how = f"how the paper cut other text, as here {language}, into tokens is not known"
        lines.append(f"  no published procedure: the script is for German (de); {how}")
    return lines


# Two systems ----------------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Two sets of translations compared by one measure, with a paired bootstrap (Koehn 2004; lesson 21 derives it).

    interval, other_interval  contain 95 % of the scores on the drawn test sets, centred on their mean
    p_value                   how often drawing alone makes a difference as large; 1 if there is no difference
    """

    measure: str
    score: float
    interval: tuple[float, float]
    other_score: float
    other_interval: tuple[float, float]
    p_value: float
    signature: str

    def verdict(self, name: str, other_name: str) -> str:
        """Name the better system, the difference and the p-value, or say that chance explains the difference."""
        difference = self.score - self.other_score
        if difference == 0:
            return "the same score"
        if self.p_value >= SIGNIFICANT:
            return f"no difference beyond chance: {difference:+.2f}, p = {self.p_value:.3f}"
        return f"{name if difference > 0 else other_name} is better: by {abs(difference):.2f}, p = {self.p_value:.3f}"


def compare(hypotheses: list[str], others: list[str], references: list[str], language: str = "de") -> list[Comparison]:
    """Compare two systems by BLEU and chrF on test sets drawn with replacement from the sentences of this one.

    The draw is seeded: the same translations give the same result. It takes 72 kB of memory for each sentence.
    """
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest

    require_pairs(hypotheses, references)
    require_pairs(others, references)
    metrics = {"BLEU": bleu_metric(language), "chrF": CHRF()}
    test: Any = PairedTest([("other", others), ("ours", hypotheses)], metrics, [references], "bs", N_SAMPLES)
    signatures, results = test()
    comparisons = []
    for measure, (name, signature) in zip(metrics, signatures.items()):  # sacreBLEU names chrF chrF2
        theirs, ours = results[name]
        intervals = [(float(each.mean - each.ci), min(100.0, float(each.mean + each.ci))) for each in (ours, theirs)]
        p_value = 1.0 if ours.score == theirs.score else ours.p_value  # sacreBLEU would say 1/1001
        comparisons.append(
            Comparison(measure, ours.score, intervals[0], theirs.score, intervals[1], p_value, str(signature))
        )
    return comparisons


def comparison_as_text(comparisons: list[Comparison], name: str, other_name: str) -> str:
    """For each measure, both scores with their intervals, and the verdict; three lines each."""
    lines = [f"paired bootstrap, {N_SAMPLES} drawn test sets, 95 % intervals:"]
    for each in comparisons:
        for score, (low, high), system in (
            (each.score, each.interval, name),
            (each.other_score, each.other_interval, other_name),
        ):
            lines.append(f"{each.measure:6} {score:6.2f}  ({low:.2f} to {high:.2f})  {system}")
        lines.append(f"{'':6} {each.verdict(name, other_name)}  ({each.signature})")
    return "\n".join(lines)


# Runs -----------------------------------------------------------------------------------------------------------------


def shared_test_set(runs: Sequence[RunDirectory], source: Path | None, reference: Path | None) -> TestSet:
    """The given files, or the test set of all these runs, which must translate between the same languages."""
    data = [run.require().data for run in runs]
    languages = [f"from {each.source_language} to {each.target_language}" for each in data]
    for run, each in zip(runs, languages):
        if each != languages[0]:
            raise UserError(f"{runs[0].path} translates {languages[0]}, but {run.path} {each}: they cannot be compared")
    first, *others = [find_test_set(each, source, reference) for each in data]
    for run, own in zip(runs[1:], others):
        if own[1:3] != first[1:3]:
            raise UserError(f"{run.path}: its test text is not that of {runs[0].path}; give --source and --reference")
    return first


def translate(translator: Translator, sentences: list[str], title: str, beam: int, alpha: float) -> list[str]:
    """The best translation of each sentence, in order. Shows a progress bar with this title on a terminal."""
    translations = translator.stream(sentences, beam, alpha)
    shown = tqdm(translations, title, len(sentences), unit=" sentences", disable=None, leave=False)
    return [best[0].text for best in shown]


def with_conditions(scored: Evaluation, conditions: dict[str, Any], path: Path) -> Evaluation:
    """The scores of a run, and by which checkpoint and which search they were reached."""
    record = conditions | scored.record
    text = (
        "{n_sentences} sentences of {source}, beam {beam}, alpha {alpha:g}, length ratio {length_ratio:.3f}, "
        "brevity penalty {brevity_penalty:.3f}"
    )
    lines = [
        scored.text,
        text.format(**record),
        f"{printable(str(path))}: {record['checkpoint']}, step {record['step']}",
    ]
    return Evaluation(record, "\n".join(lines))
