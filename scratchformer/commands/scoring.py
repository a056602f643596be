"""How good are translations: those of a run, or those in a file?"""

import argparse
import json
from pathlib import Path
from typing import Any, Sequence

from scratchformer import config as configs
from scratchformer.commands.terminal import tell
from scratchformer.commands.translation import search_options, trained_translator
from scratchformer.errors import UserError
from scratchformer.experiments import evaluation
from scratchformer.experiments.evaluation import Assessment, Comparison, Evaluation, System
from scratchformer.training.checkpoints import step_of
from scratchformer.training.run import RunDirectory, checkpoint_file


def evaluate(args: argparse.Namespace) -> None:
    if args.against_checkpoint and not args.against:
        raise UserError("--against-checkpoint is that of the run --against, which is missing")
    run = RunDirectory(args.path)
    run.require()
    data = configs.load(run.config_file).data
    files = evaluation.find_test_set(data, args.source, args.reference)
    sources, references = evaluation.read_parallel(*files)
    runs = [(args.path, args.checkpoint)] + ([(args.against, args.against_checkpoint)] if args.against else [])
    with evaluation.lines_to(args.output, files) as write:
        systems = [trained_system(args, *each) for each in runs]
        translations = [systems[0].translate(sources)]
        write(translations[0])
        translations += [system.translate(sources) for system in systems[1:]]
    language = data.target_language if args.paper else None
    results = [
        evaluation.Evaluation(system, files, evaluation.assess(lines, references, language))
        for system, lines in zip(systems, translations)
    ]
    for result in results:
        keep_scores(result.system.run, result.as_record())
    comparisons = evaluation.compare(translations[0], translations[1], references) if args.against else []
    print_scores(args.json, results, comparisons, [system.name for system in systems])


def trained_system(args: argparse.Namespace, path: Path, checkpoint: str | None) -> System:
    run = RunDirectory(path)
    run.require()
    file, options = checkpoint_file(run.checkpoints, checkpoint), search_options(args, path)
    translator = trained_translator(args, path, file)  # reads all of it: now it is sound
    return System(run, file, step_of(file), translator, **options)


def keep_scores(run: RunDirectory, scores: dict[str, Any]) -> None:
    """Add the scores to those of the run. A run that can only be read is no reason to fail."""
    try:
        run.record_evaluation(scores)
    except UserError as error:
        tell(f"scores not kept: {error}")


def score(args: argparse.Namespace) -> None:
    files = [args.hypotheses, args.against] if args.against else [args.hypotheses]
    parallel = [evaluation.read_parallel(file, args.reference) for file in files]
    translations, references = [lines for lines, _ in parallel], parallel[0][1]
    language = args.language if args.paper else None
    results = [evaluation.assess(lines, references, language) for lines in translations]
    comparisons = evaluation.compare(translations[0], translations[1], references) if args.against else []
    print_scores(args.json, results, comparisons, [str(file) for file in files])


def print_scores(
    as_json: bool, results: Sequence[Assessment | Evaluation], comparisons: list[Comparison], names: list[str]
) -> None:
    """The scores of one system or of two, and in the latter case their comparison."""
    if as_json:
        first, *others = [result.as_json() for result in results]
        both = {"against": others[0], "comparison": [each._asdict() for each in comparisons]} if others else {}
        print(json.dumps(first | both))
    else:
        print(
            "\n\n".join(
                [result.as_text() for result in results]
                + ([evaluation.comparison_as_text(comparisons, *names)] if comparisons else [])
            )
        )
