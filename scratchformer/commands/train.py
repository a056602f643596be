"""`scratchformer train`: train a model in one process or in several, or resume a run."""

from __future__ import annotations

import argparse
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scratchformer import config as configs
from scratchformer.commands.configuration import adapt_to_data, load_config, require_effect, with_options
from scratchformer.commands.options import (
    Commands,
    add_command,
    add_data,
    add_machine,
    add_option,
    add_settings,
    path,
    setting,
    within,
    word,
)
from scratchformer.commands.terminal import tell
from scratchformer.config import Config
from scratchformer.errors import UserError

if TYPE_CHECKING:
    from scratchformer.parallel.communicator import Communicator
    from scratchformer.training.run import RunDirectory


def add(commands: Commands) -> None:
    parser = add_command(commands, "train", train)
    row = f"a row of Table 3 ({', '.join(configs.TABLE3)})"
    texts = "then perhaps a text and its translation, such as a.en a.de"
    preset = f"{', '.join(configs.PRESETS)}, {row}, or a TOML file (default: tiny); {texts}"
    parser.add_argument("words", type=word, nargs="*", metavar="PRESET|FILE.toml|TEXT TEXT", help=preset)
    add_data(parser)
    own = (
        "a Python file of yours: with layers that --set chooses (sf.register), or FILE:CLASS with a model; "
        "sf.gradcheck checks their gradients (docs/extending.md)"
    )
    parser.add_argument("--model", metavar="FILE[:CLASS]", dest="defined_in", help=own)
    add_option(parser, "--out RUN", path, "the run's directory (default: runs/PRESET)")
    add_option(parser, "--resume RUN", path, "resume the run in this directory")
    add_option(parser, "--seed N", setting("seed"), "of weights, batches and dropout (default: 0)")
    add_option(parser, "--minutes M", setting("minutes"), "stop after this much wall time (0: do not)")
    add_machine(parser, "tf32", resumed="; with --resume as before")
    share = "each with its own GPU or its share of the cores"
    add_option(parser, "--nproc N", within(1, 1000), f"train with N processes on this machine, {share}", 1)
    timeout = (
        "end the job when one of its processes exchanges nothing for S seconds; S must be more than it takes "
        "to read the text, to train the tokenizer, to validate or to save (default: 1800; 0: never)"
    )
    add_option(parser, "--timeout S", within(0, 10**7), timeout, 1800)
    dry_run = "print parameters, memory, FLOPs, tokens a second of three steps, and hours; write nothing"
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    add_settings(parser)


def train(args: argparse.Namespace) -> int:
    """Train a model, or resume a run.

    scratchformer train a.en a.de --out runs/mine
    scratchformer train multi30k --data DIR --out runs/m30k --set P_drop=0.2 --set training.steps=5000
    scratchformer train gpt-tiny --text README.md docs/*.md
    scratchformer train antecedent --pretrained runs/bert-tiny
    scratchformer train --resume runs/m30k --minutes 30
    scratchformer train multi30k --data DIR --dry-run
    """
    from scratchformer.parallel import job
    from scratchformer.parallel.communicator import Communicator

    if job.is_rank():  # if anything fails from here on, all ranks end and one of them says why
        with job.join(args.timeout, args.nproc) as ranks:
            return train_as_one(args, *requested_run(args), ranks)
    run, config = requested_run(args)
    if args.dry_run:
        return measure_cost(args, config)
    if config.model.defined_in:
        from scratchformer.nn.gradient_cases import check_own

        for remark in check_own(config.model):
            tell(remark)
    return train_as_ranks(args, run, config) if args.nproc > 1 else train_as_one(args, run, config, Communicator())


def measure_cost(args: argparse.Namespace, config: Config) -> int:
    """Print what the run would cost -> exit code"""
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.experiments.dry_run import dry_run

    if args.resume or args.nproc > 1:
        raise UserError("--dry-run measures a new run in one process: no --resume, no --nproc")
    keep_freed_memory()
    print("\n".join(dry_run(adapt_to_data(config, args)[0])))
    return 0


def requested_run(args: argparse.Namespace) -> tuple[RunDirectory, Config]:
    """The run's directory and the configuration that the arguments ask for."""
    from scratchformer.training.run import RunDirectory

    if args.resume:
        if args.words or args.out or args.pretrained:
            taken = "the configuration, the weights and the directory"
            raise UserError(f"--resume takes {taken} from the run: no preset, no --out, no --pretrained")
        run = RunDirectory(args.resume)
        config = configs.with_settings(run.require(), {"training.minutes": 0.0})  # of the last time
    else:
        name = take_words(args)
        run, config = RunDirectory(args.out or Path("runs") / Path(name).stem), load_config(name)
        for corpus in configs.PUBLIC_CORPORA:
            if name.startswith(corpus) and not with_options(config, args).data.names_text:
                own = f"`scratchformer data {corpus} --out DIR` prepares its own"
                raise UserError(f"{name} needs text: {own}; then give --data DIR")
    config = with_options(config, args)
    require_effect(config, args)
    configs.require_work_for(config, args.nproc)
    return run, config


def take_words(args: argparse.Namespace) -> str:
    """Read the words `[PRESET] [SOURCE TARGET]`: the two files become the training text -> the name of the preset"""
    from scratchformer.tasks.translation import language_of

    *names, source, target = args.words if len(args.words) > 1 else [*args.words, None, None]
    if len(args.words) == 1 and Path(args.words[0]).is_dir() and args.words[0] not in configs.PRESETS:
        raise UserError(f"{args.words[0]}: is a directory; did you mean --data {shlex.quote(args.words[0])}?")
    if [name for name in names if language_of(Path(name)) and Path(name).is_file()]:
        raise UserError(f"{' '.join(args.words)}: training text is two files, such as a.en a.de")
    if len(names) > 1 or source in configs.PRESETS and not Path(source).exists():
        raise UserError(f"{' '.join(args.words)}: give at most a preset, a text and its translation")
    if source:
        if args.train_source or args.train_target or args.directory:
            raise UserError(f"{source} and {target}: give the training text once, here or by an option")
        args.train_source, args.train_target = source, target
    return names[0] if names else "tiny"


def train_as_ranks(args: argparse.Namespace, run: RunDirectory, config: Config) -> int:
    """Start `--nproc` processes with the same command, and wait for them -> exit code"""
    from scratchformer.parallel import launcher

    code = launcher.launch(launcher.command_of(args.arguments), args.nproc)
    if code != 0 and run.config_file.exists():
        with suppress(UserError):  # another job trains in this run
            run.lock()
            run.remove_unfinished()
    if code == 1 and run.config_file.exists():
        tell(f"{run.path}: what is saved is sound; {how_to_resume(args, run)}")
    return code


def how_to_resume(args: argparse.Namespace, run: RunDirectory) -> str:
    command = f"resume with: scratchformer train --resume {shlex.quote(str(run.path))}"
    return f"{command} --nproc {args.nproc}" if args.nproc > 1 else command


def train_as_one(args: argparse.Namespace, run: RunDirectory, config: Config, ranks: Communicator) -> int:
    """Train in this process, alone or as one of several ranks; rank 0 writes the messages. -> exit code"""
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.nn.registry import not_chosen
    from scratchformer.parallel import job
    from scratchformer.tasks import start
    from scratchformer.training import loop
    from scratchformer.training.schedule import contradictions, planned_steps

    say = tell if ranks.rank == 0 else lambda line: None
    keep_freed_memory()
    if args.resume:
        trainer, remarks = start.resume(run, config, ranks)
        for remark in [*remarks, f"resumed after step {trainer.progress.step}"]:
            say(f"{run.path}: {remark}")
    else:
        config, message = adapt_to_data(config, args)
        trainer = start.begin(run, config, ranks)
        if message:
            say(message)
        for remark in trainer.remarks:
            say(f"{run.path}: {remark}")
    say(f"{run.path}: {trainer.summary()}")
    if trainer.data.val is None:
        say(f"{run.path}: without validation text, nothing is validated, scored or stopped early")
    if trainer.is_main:
        n_steps = planned_steps(trainer.config, trainer.data.train.n_targets, len(trainer.plan.epoch(0)))
        if found := contradictions(trainer.config, n_steps):
            say(f"{run.path}: {found}")
        if unused := not_chosen(config.model):
            would = " ".join(f"--set {setting}" for setting in unused)
            say(f"{config.model.defined_in}: registers layers that no setting chooses; {would} would")
    reason = loop.train(trainer)
    if not trainer.progress.step:
        say(f"{run.path}: {reason}, before the first step was done; {how_to_resume(args, run)}")
        return job.INTERRUPTED if reason == loop.INTERRUPTED else 0
    unvalidated = trainer.progress.step % trainer.config.training.validate_every
    if trainer.data.val is not None and unvalidated:
        which = "--checkpoint last uses them" if run.checkpoints.best.exists() else "there is no best checkpoint"
        say(f"{run.path}: the last {unvalidated} steps are not validated (training.validate_every); {which}")
    name, done = shlex.quote(str(run.path)), trainer.progress.step >= trainer.config.training.steps
    more = f" --set steps={2 * trainer.config.training.steps}" if done else ""
    say(
        f"{run.path}: {reason}; step {trainer.progress.step}, {trainer.progress.target_tokens} target tokens. "
        f"Now try: scratchformer {trainer.goal.command} {name}, scratchformer plot {name} loss; "
        f"{how_to_resume(args, run)}{more}"
    )
    return job.INTERRUPTED if reason == loop.INTERRUPTED else 0
