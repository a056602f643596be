"""How well a run parses a test set: labelled F1 as EVALB counts it, beside three parsers without a neural network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scratchformer.decoding.tree_parser import TreeParser
from scratchformer.experiments.baseline_parsers import PCFG, MajorityLabel, RightBranching
from scratchformer.text.bracket_score import BracketScores, score_parses
from scratchformer.text.trees import Parse, Tree
from scratchformer.training.run import Trained, translator_of
from scratchformer.training.task_parsing import read_split, read_treebank

BASELINES: dict[str, type[RightBranching] | type[PCFG]] = {
    "PCFG": PCFG,
    "right-branching": RightBranching,
    "majority label": MajorityLabel,
}


class ParserScores(NamedTuple):
    """The scores of the model, those of each baseline by its name, and the model's trees."""

    model: BracketScores
    baselines: dict[str, BracketScores]
    trees: list[Tree]

    def as_record(self) -> dict[str, Any]:
        """The scores, flat: those of the model under their names, and the F1 of each baseline."""
        others = {f"{name} F1": scores.f1 for name, scores in self.baselines.items()}
        return self.model._asdict() | others

    def as_text(self) -> str:
        """A table with a row for each parser, and a line on what it counts."""
        lines = [f"{'':<16}{'F1':>7}{'precision':>11}{'recall':>8}{'complete match':>16}{'tags':>7}{'unparsable':>12}"]
        for name, scores in {"this model": self.model, **self.baselines}.items():
            f1, precision, recall, complete, tags, unparsable = scores[:6]
            lines.append(
                f"{name:<16}{f1:7.2f}{precision:11.2f}{recall:8.2f}{complete:16.1f}{tags:7.1f}{unparsable:12.1f}"
            )
        return "\n".join(
            [
                *lines,
                f"in %, of {self.model.n_sentences:,} sentences, {self.model.n_errors} of them not counted; "
                "brackets by EVALB's rules (COLLINS.prm)",
            ]
        )


def baseline_scores(train: Sequence[Tree], test: Sequence[Tree]) -> dict[str, BracketScores]:
    """Train each baseline on trees, and score its parses of others."""
    parsers: dict[str, RightBranching | PCFG] = {name: kind(train) for name, kind in BASELINES.items()}
    words = [tree.words for tree in test]
    return {
        name: score_parses([Parse(parser.parse(each), False) for each in words], test)
        for name, parser in parsers.items()
    }


def model_parses(trained: Trained, test: Sequence[Tree], free: bool = False) -> list[Parse]:
    """The model's trees over the same words; free: it may write what is no tree, to be repaired."""
    decoding, translator = trained.config.decoding, translator_of(trained)
    if free:
        translator.rules = None
    return TreeParser(translator).parse([tree.words for tree in test], decoding.beam, decoding.alpha)


def evaluate(trained: Trained, reference: Path | None = None) -> ParserScores:
    """Score the model and the baselines on the trees of a file, or on the test set of the run's data."""
    data = trained.config.data
    test = read_treebank(reference) if reference else read_split(data, "test")
    parses = model_parses(trained, test)
    baselines = baseline_scores(read_split(data, "train"), test)
    return ParserScores(score_parses(parses, test), baselines, [tree for tree, _ in parses])
