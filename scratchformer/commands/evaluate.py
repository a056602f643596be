"""`scratchformer evaluate`: score runs on their test data, and compare them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_checkpoint, add_command, add_option, add_search, path, word
from scratchformer.commands.terminal import tell
from scratchformer.commands.translate import machine_of, search_options
from scratchformer.errors import UserError, printable

if TYPE_CHECKING:
    from scratchformer.experiments.evaluation import TestSet
    from scratchformer.tasks.task import Evaluation
    from scratchformer.training.run import RunDirectory, Trained


def add(commands: Commands) -> None:
    parser = add_command(commands, "evaluate", evaluate)
    runs = "a run's directory; several are a group that differs in the seed"
    parser.add_argument("runs", type=path, nargs="+", metavar="RUN", help=runs)
    add_checkpoint(parser)
    default = "the test split of the run's data, or what it validates with"
    add_option(
        parser, "--source F", path, f"text to translate, one sentence a line; with --reference (default: {default})"
    )
    reference = "its translation, line by line; for a run that parses: trees (default: its test.trees)"
    add_option(parser, "--reference F", path, reference)
    add_option(parser, "--output F", path, "also write the translations, or the trees, to this file")
    parser.add_argument(
        "--paper", action="store_true", help="also compute BLEU as the paper's script does, and explain the difference"
    )
    against = "compare with this run, or with this group: is the difference more than the seeds?"
    parser.add_argument("--against", type=path, nargs="+", default=[], metavar="RUN", help=against)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_option(parser, "--against-checkpoint C", word, "as --checkpoint, of the other runs")
    add_search(parser)


def evaluate(args: argparse.Namespace) -> None:
    """Score runs: translators by sacreBLEU and chrF on a test set, others by the score of their task. Compare them.

    scratchformer evaluate runs/m30k --paper
    scratchformer evaluate runs/wsj --output trees.txt
    scratchformer evaluate runs/m30k --source test.en.gz --reference test.de.gz --json
    scratchformer evaluate runs/big --against runs/base
    scratchformer evaluate runs/pre-0 runs/pre-1 runs/pre-2 --against runs/post-0 runs/post-1 runs/post-2
    """
    from scratchformer.experiments import evaluation, groups
    from scratchformer.text.bleu import doubts
    from scratchformer.training.run import RunDirectory

    if args.against_checkpoint and not args.against:
        raise UserError("--against-checkpoint needs --against, the run of that checkpoint")
    task, remarks = groups.require_comparable(args.runs, args.against, bool(args.against_checkpoint))
    sides = ((args.runs, args.checkpoint), (args.against, args.against_checkpoint))
    runs = [(RunDirectory(path), checkpoint) for paths, checkpoint in sides for path in paths]
    pair = task == "translation" and len(args.runs) == len(args.against) == 1
    if len(runs) > 1 and not pair:
        if args.output or args.paper:
            raise UserError(f"--{'output' if args.output else 'paper'} is for one run, not for a group of runs")
        if len(runs) > 2 and {args.checkpoint, args.against_checkpoint} - {None, "average", "best", "last"}:
            raise UserError("the checkpoint of a group of runs must be average, best or last")
    score: Callable[..., Evaluation] = partial(evaluate_task, args, task)
    language = runs[0][0].require().data.target_language
    if task == "translation":
        test = evaluation.shared_test_set([run for run, _ in runs], args.source, args.reference)
        score = partial(evaluate_translation, args, test, runs[0][0])
    found: list[Evaluation] = []
    scored, failures = [], list[Exception]()
    for each in runs:
        try:
            found.append(score(*each))
            scored.append(each[0])
        except (UserError, OSError, MemoryError) as error:
            failures.append(error)
    if task == "translation" and found and (doubt := doubts(test.reference, language)):
        tell(doubt)
    for remark in remarks:
        tell(remark)
    texts = [each.text for each in found]
    records = [{"run": str(run.path)} | each.record for run, each in zip(scored, found)]
    result: dict[str, Any] = records[0] if records else {}
    if failures:
        result = {"runs": records}
    elif pair:
        comparisons = evaluation.compare(found[0].output, found[1].output, test.reference, language)
        names = [f"{record['run']} ({Path(record['checkpoint']).stem})" for record in records]
        result = records[0] | {"against": records[1], "comparison": [each._asdict() for each in comparisons]}
        texts.append(evaluation.comparison_as_text(comparisons, *map(printable, names)))
        if not args.against_checkpoint:
            texts.append(groups.TWO_RUNS)
    elif len(runs) > 1:
        if not args.checkpoint and len({each["checkpoint"].split("_")[0] for each in records}) > 1:
            tell("the runs are scored by different kinds of checkpoints; choose one, such as --checkpoint best")
        tests, text = groups.compare(task, scored, records, len(args.runs))
        result, texts = {"runs": records, "comparison": tests}, [text]
    if found:
        print(json.dumps(result) if args.json else "\n\n".join(texts))
    for failure in failures[:-1]:
        tell(f"scratchformer: {failure}")
    if failures:
        raise failures[-1]


def evaluate_translation(
    args: argparse.Namespace, test: TestSet, first: RunDirectory, run: RunDirectory, checkpoint: str | None
) -> Evaluation:
    """Translate a test set with a run, and score the translations. The output of the first run is written."""
    from scratchformer.experiments import evaluation
    from scratchformer.training.checkpoints import progress_of
    from scratchformer.training.run import checkpoint_file, load_model, translator_of

    data, (device, threads) = first.require().data, machine_of(args)
    search, file = search_options(args, run.require()), checkpoint_file(run.checkpoints, checkpoint)
    trained, name = load_model(run.path, file, threads=threads, device=device), f"{run.path} ({file.stem})"
    if not test.files:
        require_same_data(trained)
    translator = translator_of(trained)
    conditions = {"checkpoint": printable(file.name), "step": progress_of(file).step} | search
    conditions |= {
        "source": printable(test.name),
        "reference": os.path.abspath(test.files.target) if test.files else None,
    }
    output = args.output if run is first else None
    with evaluation.open_output(output, [*(test.files or ()), *evaluation.texts_of(data)]) as write:
        lines = evaluation.translate(translator, test.source, printable(f"translate with {name}"), **search)
        write(lines)
    scored = evaluation.assess(lines, test.reference, data.target_language, args.paper)
    scored = evaluation.with_conditions(scored, conditions, run.path)._replace(output=lines)
    if remark := translator.unknown.remark():
        tell(f"{name}: {remark}")
    record_scores(run, scored.record)
    return scored


FOR_TRANSLATION = ("source", "reference", "output", "paper")
FOR_SEARCH = ("beam", "alpha")
FOR_PARSING = ("reference", "output", *FOR_SEARCH)


def evaluate_task(args: argparse.Namespace, task: str, run: RunDirectory, checkpoint: str | None) -> Evaluation:
    """Score a run of another task than translation on the test data that belong to its training data."""
    from threadpoolctl import threadpool_limits

    from scratchformer.experiments.evaluation import open_output
    from scratchformer.tasks.task import Evaluation, task_named
    from scratchformer.training.checkpoints import progress_of
    from scratchformer.training.run import load_model

    for name in FOR_TRANSLATION + FOR_SEARCH:
        if getattr(args, name) not in (None, False) and not (task == "parsing" and name in FOR_PARSING):
            raise UserError(f"--{name} means nothing for {run.path}, a run for {task}")
    device, threads = machine_of(args)
    trained = load_model(run.path, checkpoint, threads=threads, device=device)
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
    return Evaluation(
        record, f"{found.text}\n{printable(str(run.path))}: {record['checkpoint']}, step {record['step']}"
    )


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


def record_scores(run: RunDirectory, scores: dict[str, Any]) -> None:
    """Append the scores to those of the run, or say why not: a run that is read-only can be evaluated all the same."""
    try:
        run.record_evaluation(scores)
    except UserError as error:
        tell(f"scores not recorded: {error}")
