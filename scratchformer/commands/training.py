"""Train a model, in this process or in several, or go on with one."""

import argparse
import shlex
import sys
from contextlib import redirect_stderr
from pathlib import Path

from scratchformer import config as configs
from scratchformer.backends.cpu import keep_freed_memory
from scratchformer.commands.configuration import PATHS, changed, following_data, named_config, require_processes
from scratchformer.commands.terminal import UnheardStream, tell
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.parallel import launcher
from scratchformer.parallel.communicator import Communicator
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory


def train(args: argparse.Namespace) -> int:
    if not (args.timeout == 0 or args.timeout >= 1):
        raise UserError(f"--timeout {args.timeout:g} must be at least 1 second, or 0")
    with launcher.joined(args.timeout) as ranks:  # before anything can go wrong:
        run, config = asked_to_train(args)  # all ranks end, and one says why
        require_processes(args.nproc, config)
        if args.nproc > 1 and not launcher.is_rank():
            return train_as_ranks(args, run, config)
        with redirect_stderr(UnheardStream(sys.stderr)):
            return train_as_one(args, run, config, ranks)


def asked_to_train(args: argparse.Namespace) -> tuple[RunDirectory, Config]:
    """What to train, and where."""
    if args.resume:
        if args.preset or args.out:
            raise UserError("--resume takes the configuration and the directory from the run: no preset, no --out")
        run = RunDirectory(args.resume)
        run.require()
        config = configs.with_settings(configs.load(run.config_file), {"training.minutes": 0.0})  # those of last time
    else:
        name = "tiny" if args.preset is None else args.preset
        run, config = RunDirectory(args.out or Path("runs") / Path(name).stem), named_config(name)
        require_text(name, changed(config, args))
    return run, changed(config, args)


def require_text(preset: str, config: Config) -> None:
    """Raises UserError if the preset learns from a public data set, and no text is named."""
    if not config.data.names_text:
        for corpus in configs.PUBLIC_CORPORA:
            if preset.startswith(corpus):
                raise UserError(
                    f"{preset}: from which text? `scratchformer data {corpus} --out DIR` prepares its own; "
                    "then give --data DIR"
                )


def train_as_ranks(args: argparse.Namespace, run: RunDirectory, config: Config) -> int:
    """Let `--nproc` processes do what this command says."""
    for key, path in configs.flat(config).items():
        if key in PATHS and path and Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
            raise UserError(f"{path}: {args.nproc} processes cannot all read it, since it is not a file on disk")
    code = launcher.launch(launcher.command_of(args.arguments), args.nproc)
    if code not in (0, 2):  # 2: perhaps it is another job's run
        run.remove_unfinished()
    if code == 1 and run.config_file.exists():
        tell(f"{run.path}: what is saved is sound; {how_to_go_on(args, run)}")
    return code


def how_to_go_on(args: argparse.Namespace, run: RunDirectory) -> str:
    command = f"go on with: scratchformer train --resume {shlex.quote(str(run.path))}"
    return f"{command} --nproc {args.nproc}" if args.nproc > 1 else command


def train_as_one(args: argparse.Namespace, run: RunDirectory, config: Config, ranks: Communicator) -> int:
    """Train, alone or as one of several processes; of these the first one speaks."""
    say = tell if ranks.rank == 0 else lambda line: None
    keep_freed_memory()
    if args.resume:
        trainer, complaints = loop.resume(run, config, ranks)
        for complaint in complaints:
            say(f"passed over {complaint}")
        say(f"{run.path}: going on after step {trainer.progress.step}")
    else:
        config, followed = following_data(config, args)
        if followed:
            say(followed)
        trainer = loop.begin(run, config, ranks)
    say(f"{run.path}: {trainer.summary()}")
    reason = loop.train(trainer)
    if ranks.rank == 0:
        from scratchformer.commands.figures import draw_training  # matplotlib is not for every rank

        draw_training(run, config)
    say(
        f"{run.path}: {reason}; step {trainer.progress.step}, {trainer.progress.target_tokens} target tokens. "
        f"Figures are in {run.figures}; {how_to_go_on(args, run)}"
    )
    return launcher.INTERRUPTED if reason == loop.INTERRUPTED else 0
