"""`scratchformer evaluate`: translate a test set with a run and score it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, add_option, add_run, add_search, path, word
from scratchformer.commands.terminal import tell
from scratchformer.commands.translate import machine_of, search_options
from scratchformer.errors import UserError, printable

if TYPE_CHECKING:
    from scratchformer.experiments.evaluation import System
    from scratchformer.training.run import RunDirectory, Trained


def add(commands: Commands) -> None:
    parser = add_command(commands, "evaluate", evaluate)
    add_run(parser)
    default = "the test split of the run's data directory"
    add_option(
        parser, "--source F", path, f"text to translate, one sentence a line; with --reference (default: {default})"
    )
    reference = "its translation, line by line; for a run that parses: trees (default: its test.trees)"
    add_option(parser, "--reference F", path, reference)
    add_option(parser, "--output F", path, "also write the translations, or the trees, to this file")
    parser.add_argument(
        "--paper", action="store_true", help="also compute BLEU as the paper's script does, and explain the difference"
    )
    against = "compare with the translations of this run, and test whether the difference is significant"
    add_option(parser, "--against RUN", path, against)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_option(parser, "--against-checkpoint C", word, "as --checkpoint, of the other run")
    add_search(parser)


def evaluate(args: argparse.Namespace) -> None:
    """Score a run: translations of a test set by sacreBLEU and chrF, what other runs do by the score of their task.

    scratchformer evaluate runs/m30k --paper
    scratchformer evaluate runs/wsj --output trees.txt
    scratchformer evaluate runs/m30k --source test.en.gz --reference test.de.gz --json
    scratchformer evaluate runs/big --against runs/base
    """
    from scratchformer.experiments import evaluation
    from scratchformer.text.bleu import doubts
    from scratchformer.training.run import RunDirectory

    if args.against_checkpoint and not args.against:
        raise UserError("--against-checkpoint needs --against, the run of that checkpoint")
    run = RunDirectory(args.path)
    data = run.require().data
    if data.task != "translation":
        return evaluate_task(args, run, data.task)
    files = evaluation.find_test_set(data, args.source, args.reference)
    sources, references = evaluation.read_parallel(files)
    runs = [(args.path, args.checkpoint)] + ([(args.against, args.against_checkpoint)] if args.against else [])
    if args.against:
        evaluation.require_same_languages(run, RunDirectory(args.against))
    with evaluation.open_output(args.output, [*files, *evaluation.texts_of(data)]) as write:
        systems = [load_system(args, *each) for each in runs]
        translations = [systems[0].translate(sources)]
        write(translations[0])
    translations += [system.translate(sources) for system in systems[1:]]
    language, results = data.target_language, []
    for system, lines in zip(systems, translations):
        results.append(system.evaluate(files, lines, references, language, args.paper))
        if remark := system.translator.unknown.remark():
            tell(f"{system.name}: {remark}")
    if doubt := doubts(references, language):
        tell(doubt)
    for system, result in zip(systems, results):
        record_scores(system.run, result.record)
    comparisons = evaluation.compare(translations[0], translations[1], references, language) if args.against else []
    if args.json:
        first, *others = [{"run": str(system.run.path)} | found.record for system, found in zip(systems, results)]
        both = {"against": others[0], "comparison": [each._asdict() for each in comparisons]} if others else {}
        print(json.dumps(first | both))
    else:
        names = [system.name for system in systems]
        comparison = [evaluation.comparison_as_text(comparisons, *names)] if comparisons else []
        print("\n\n".join([result.text for result in results] + comparison))


FOR_TRANSLATION = ("source", "reference", "output", "paper", "against")
FOR_SEARCH = ("beam", "alpha")
FOR_PARSING = ("reference", "output", *FOR_SEARCH)


def evaluate_task(args: argparse.Namespace, run: RunDirectory, task: str) -> None:
    """Score a run of another task than translation on the test data that belong to its training data."""
    from threadpoolctl import threadpool_limits

    from scratchformer.experiments.evaluation import open_output
    from scratchformer.tasks.task import task_named
    from scratchformer.training.checkpoints import progress_of
    from scratchformer.training.run import load_model

    for name in FOR_TRANSLATION + FOR_SEARCH:
        if getattr(args, name) not in (None, False) and not (task == "parsing" and name in FOR_PARSING):
            raise UserError(f"--{name} means nothing for {run.path}, a run for {task}")
    device, threads = machine_of(args)
    trained = load_model(run.path, args.checkpoint, threads=threads, device=device)
    require_same_data(trained)
    search = {f"decoding.{name}": getattr(args, name) for name in FOR_SEARCH if getattr(args, name) is not None}
    trained = trained._replace(config=configs.with_settings(trained.config, search))
    data = trained.config.data
    texts = [Path(data.directory) / f"{split}.trees" for split in ("train", "val", "test") if data.directory]
    texts += filter(None, [args.reference])
    with threadpool_limits(threads, "blas"), open_output(args.output, texts) as write:
        found = task_named(task).evaluate(trained, args.reference)
        write(found.output)
    record = {"checkpoint": printable(trained.file.name), "step": progress_of(trained.file).step} | found.record
    record_scores(run, record)
    if args.json:
        print(json.dumps({"run": str(run.path)} | record))
    else:
        print(f"{found.text}\n{printable(str(run.path))}: {record['checkpoint']}, step {record['step']}")


def require_same_data(trained: Trained) -> None:
    """Refuse a run whose files have changed since: text that validated then may have been trained on now."""
    from scratchformer.tasks.task import task_named
    from scratchformer.training.checkpoints import progress_of

    config, checksum = trained.config, progress_of(trained.file).data_checksum  # 0: imported, not trained here
    if checksum and config.data.names_text:
        if task_named(config.data.task).resume(config, trained.tokenizer).checksum != checksum:
            raise UserError(
                f"{trained.file}: was trained on other text than its files have now, so it cannot be scored"
            )


def load_system(args: argparse.Namespace, path: Path, checkpoint: str | None) -> System:
    """The model of a run with its checkpoint and its search options."""
    from scratchformer.experiments.evaluation import System
    from scratchformer.training.checkpoints import progress_of
    from scratchformer.training.run import RunDirectory, checkpoint_file, load_run

    run = RunDirectory(path)
    options, file = search_options(args, run.require()), checkpoint_file(run.checkpoints, checkpoint)
    device, threads = machine_of(args)
    translator = load_run(path, file, threads=threads, device=device)  # before `progress_of`, which needs a sound file
    return System(run, file, progress_of(file).step, translator, **options)


def record_scores(run: RunDirectory, scores: dict[str, Any]) -> None:
    """Append the scores to those of the run, or say why not: a run that is read-only can be evaluated all the same."""
    try:
        run.record_evaluation(scores)
    except UserError as error:
        tell(f"scores not recorded: {error}")
