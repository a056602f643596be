"""The command line: one command, `scratchformer`, with a subcommand for everything a user does."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import textwrap
from contextlib import redirect_stderr
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import scratchformer
from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel import launcher
from scratchformer.parallel.communicator import Abandoned, Communicator

if TYPE_CHECKING:
    from scratchformer.decoding.translator import Translator
    from scratchformer.study.evaluation import Assessment, Comparison, Evaluation, System
    from scratchformer.text.corpora import CorpusFiles
    from scratchformer.text.preparation import Options
    from scratchformer.training.run import RunDirectory

EXAMPLES = """\
examples:
  scratchformer train tiny                          a small model on the bundled corpus, in minutes
  echo "The dog sleeps." | scratchformer translate runs/tiny
  scratchformer gradcheck                           prove every hand-written gradient
  scratchformer doctor                              why does it not learn? examine code, text and machine
  scratchformer learn start                         exercises of the lessons, with a checker that explains
  scratchformer plot runs/tiny attention --sentence "The animal did not cross the street because it was too tired."
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command -> exit code: 0 done, 1 a check, a GPU or a rank failed, 2 bad input, 130 interrupted."""
    if sys.stderr is None:                                                         # closed: keep files off its number
        sys.stderr = open(os.dup2(os.open(os.devnull, os.O_WRONLY), 2), "w")
    args = parse(arguments)
    try:
        code = args.run(args) or 0
        print(end="", flush=True)                                                  # while a failure can still be told
        return code
    except UserError as error:
        print(f"scratchformer: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:                                                        # `... | head` has read enough
        discard_unwritable_output()
        return 0
    except (OSError, MemoryError) as error:                                        # a full disk, a model too large
        discard_unwritable_output()
        print(f"scratchformer: {error or 'not enough memory'}", file=sys.stderr)
        return 2
    except Abandoned as error:
        if str(error):
            print(f"scratchformer: {error}", file=sys.stderr)
        return launcher.GAVE_UP
    except RuntimeError as error:
        if not type(error).__module__.startswith("cupy"):
            raise
        print(f"scratchformer: the GPU failed: {in_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("scratchformer: interrupted", file=sys.stderr)
        return launcher.INTERRUPTED


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """argparse, and files that stand behind an option of `translate`: by itself it lets an empty list of files end with
    the first option."""
    top = parser()
    args, rest = top.parse_known_args(arguments)
    args.arguments = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
    if rest and args.command == "translate" and not any(word.startswith("-") for word in rest):
        args.files += [Path(word) for word in rest]
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


def discard_unwritable_output() -> None:
    """If standard output cannot be written, let its buffer go: Python would stumble over it at the end."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter                                     # keeps the lines of the examples
    top = argparse.ArgumentParser(prog="scratchformer", description=scratchformer.__doc__, epilog=EXAMPLES,
                                  formatter_class=raw)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary, formatter_class=raw,
                                  epilog=f"example:\n  scratchformer {example}")
        sub.set_defaults(run=run)
        return sub

    sub = command("train", train, "train a model, or go on with one",
                  "train multi30k --data DIR --out runs/m30k --set P_drop=0.2 --set training.steps=5000\n"
                  "  scratchformer train --resume runs/m30k --minutes 30")
    sub.add_argument("preset", nargs="?", metavar="PRESET|FILE.toml",
                     help=f"{', '.join(configs.PRESETS)}, a row of Table 3 ({', '.join(configs.TABLE3)}), "
                          "or a TOML file (default: tiny)")
    add_data(sub)
    sub.add_argument("--out", type=Path, metavar="RUN", help="the run's directory (default: runs/PRESET)")
    sub.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this directory")
    sub.add_argument("--seed", type=int, metavar="N", help="of weights, batches and dropout (default: 0)")
    sub.add_argument("--minutes", type=float, metavar="M", help="stop after this much wall time")
    add_machine(sub)
    sub.add_argument("--nproc", type=int, default=1, metavar="N",
                     help="train with N processes of this machine, each with a GPU or some of the cores of its own")
    sub.add_argument("--timeout", type=float, default=1800, metavar="S",
                     help="end the job when one of its processes shows no sign of life for S seconds, more than it "
                          "takes to read the text, to learn the tokenizer, to validate or to save "
                          "(default: 1800; 0: never)")
    add_settings(sub)

    sub = command("translate", translate, "translate files, or standard input, to standard output",
                  "translate runs/tiny --beam 4 sentences.en > sentences.de")
    add_run(sub)
    sub.add_argument("files", nargs="*", type=Path, metavar="FILE", help="text to translate (default: standard input)")
    sub.add_argument("--nbest", type=int, default=1, metavar="N",
                     help="print the N best translations of each line, as line number, score and text, tab-separated")
    add_search(sub)

    sub = command("evaluate", evaluate, "translate a test set and score it: sacreBLEU and chrF",
                  "evaluate runs/m30k --paper\n"
                  "  scratchformer evaluate runs/m30k --source test.en.gz --reference test.de.gz --json\n"
                  "  scratchformer evaluate runs/big --against runs/base")
    add_run(sub)
    sub.add_argument("--source", type=Path, metavar="F", help="text to translate, one sentence a line; with "
                     "--reference (default: the test split of the run's data directory)")
    sub.add_argument("--reference", type=Path, metavar="F", help="its translation, line by line")
    sub.add_argument("--output", type=Path, metavar="F", help="write the translations to this file as well")
    add_scores(sub, "RUN", "translate with this run as well")
    sub.add_argument("--against-checkpoint", metavar="C", help="as --checkpoint, of the other run")
    add_search(sub)

    sub = command("score", score, "score translations that are there already: sacreBLEU and chrF",
                  "score translations.de --reference test.de --paper")
    sub.add_argument("hypotheses", type=Path, metavar="FILE", help="translations, plain text, one sentence a line")
    sub.add_argument("--reference", type=Path, required=True, metavar="F", help="what they should be, line by line")
    add_scores(sub, "FILE", "score these translations as well")
    sub.add_argument("--language", default="de", metavar="L", help="of the text, for --paper (default: de)")

    sub = command("average", average, "average the weights of a run's last checkpoints; later commands use the average",
                  "average runs/m30k --last 10")
    sub.add_argument("--last", type=int, metavar="N", help="how many (default: the run's training.average_last)")
    add_run(sub, checkpoint=False)

    sub = command("export", export, "write a run's weights as a safetensors file that another library can load",
                  "export runs/tiny --to torch tiny.safetensors")
    add_run(sub)
    sub.add_argument("--to", choices=["torch"], required=True, help="torch: the state dict of nn.TransformerEncoder, "
                     "nn.TransformerDecoder and the embeddings")
    sub.add_argument("file", type=Path, metavar="FILE")

    sub = command("import", import_, "make a run of an exported file", "import tiny.safetensors --out runs/imported")
    sub.add_argument("file", type=Path, metavar="FILE")
    sub.add_argument("--out", type=Path, required=True, metavar="RUN", help="the directory of the new run")

    sub = command("gradcheck", gradcheck, "compare every hand-written gradient with finite differences",
                  "gradcheck SelfAttention LayerNorm")
    sub.add_argument("layers", nargs="*", metavar="LAYER", help="class names (default: all)")
    sub.add_argument("--json", action="store_true", help="print one JSON object per line")

    sub = command("doctor", doctor, "find out why it does not learn: probe the code, a configuration, text and machine",
                  "doctor multi30k --data DIR --set training.warmup=100\n  scratchformer doctor runs/tiny --json")
    sub.add_argument("preset", nargs="?", default="tiny", metavar="PRESET|FILE.toml|RUN",
                     help="as for train, or a run's directory: then its weights and its log are examined, too")
    add_data(sub)
    sub.add_argument("--code", action="store_true", help="only the code: not the configuration, the text, the machine")
    sub.add_argument("--json", action="store_true", help="print one JSON object per probe, and one for the diagnosis")
    add_settings(sub)

    sub = command("plot", plot, "draw a figure of a run", "plot runs/tiny loss --out loss.svg")
    add_run(sub)
    sub.add_argument("figure", choices=["attention", "positions", "schedule", "loss"])
    sub.add_argument("--sentence", default="The animal did not cross the street because it was too tired.",
                     help="for attention: the sentence to translate")
    sub.add_argument("--out", type=Path, metavar="FILE", help="PNG or SVG (default: RUN/figures/FIGURE.png)")

    sub = command("data", data, "download a public corpus, or take text files, and prepare them for training",
                  "data wmt14-en-de --out data/wmt14-en-de\n  scratchformer data tiny --out data/tiny\n"
                  "  scratchformer data files --source big.en.gz --target big.de.gz --val-source val.en "
                  "--val-target val.de --out DIR")
    sub.add_argument("name", choices=[*PUBLIC, "files", "tiny"],
                     help="a public data set; files: your own; tiny: the bundled corpus, as plain text")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR",
                     help="the same command goes on there after a stop")
    sub.add_argument("--mirror", metavar="URL", help="takes the place of scheme and host of every download")
    add_preparation(sub)

    sub = command("config", show_config, "print a configuration as TOML, with its parameter count and memory",
                  "config base --set h=16 > base16.toml")
    sub.add_argument("preset", metavar="PRESET|FILE.toml")
    sub.add_argument("--nproc", type=int, default=1, metavar="N", help="and how N processes would share a step")
    add_settings(sub)

    sub = command("plan", plan, "what a run will cost before it begins: FLOPs, memory, hours from measured steps",
                  "plan base --device gpu --precision bf16\n  scratchformer plan multi30k --data DIR --json")
    sub.add_argument("preset", metavar="PRESET|FILE.toml")
    add_data(sub)
    add_machine(sub)
    sub.add_argument("--nproc", type=int, default=1, metavar="N",
                     help="processes that would share a step; one is measured, with its share")
    sub.add_argument("--seconds", type=float, default=20, metavar="S",
                     help="about how long to take training steps (default: 20)")
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(sub)

    sub = command("report", report, "write what a run was, what it reached and what it cost, beside the paper",
                  "report runs/m30k --tflops 0.2")
    add_run(sub, checkpoint=False)
    sub.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RUN/report)")
    sub.add_argument("--tflops", type=float, metavar="X",
                     help="what the machine can sustain, in TFLOPS of all its devices together: then the report says "
                          "which share of it the run has used")

    sub = command("ablate", ablate, "train the rows of the paper's Table 3 at a smaller scale, and judge its claims",
                  "ablate --rows A,D1 --on tiny --seeds 3 --out runs/ablations\n"
                  "  scratchformer ablate --on multi30k --data DIR --out runs/ablations-m30k --device gpu")
    add_ablate(sub)

    sub = command("learn", learn, "write the backward passes yourself, with a checker that says what is wrong",
                  "learn start\n  scratchformer learn check 01_linear_backward\n"
                  "  scratchformer learn hint 01_linear_backward 2")
    add_learn(sub)

    sub = command("demo", demo, "train tiny, translate held-out sentences, score them", "demo --out runs/demo")
    sub.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="RUN")
    return top


def add_ablate(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--rows", default="A,B,C,D,E", metavar="LIST",
                     help="groups or rows of Table 3, as A,C1,big (default: A,B,C,D,E; the base model is always there)")
    sub.add_argument("--on", choices=["tiny", "multi30k", "wmt14"], default="tiny", help="the text (default: tiny)")
    sub.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each row (default: 3)")
    sub.add_argument("--data", metavar="DIR", help="the text; tiny has its own")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR",
                     help="directory of the runs and of what comes of them; the same command goes on after a stop")
    sub.add_argument("--jobs", type=int, metavar="N",
                     help="runs at a time, each on its share of the cores (default: one a core; one on a GPU)")
    add_machine(sub, threads=False)
    add_settings(sub)


PUBLIC = ["multi30k", "wmt14-en-de", "wmt14-en-fr"]
"""The data sets that can be downloaded, `text.datasets.DATASETS`; presets that learn from one begin with its name."""


def add_preparation(sub: argparse.ArgumentParser) -> None:
    """The files of `data files`, and the options of a preparation: those of `preparation.Options`, with its defaults.
    """
    for side in ("source", "target"):
        sub.add_argument(f"--{side}", type=Path, action="append", default=[], metavar="F",
                         help="training text, UTF-8, one sentence a line, plain or .gz; again for each further part")
    for name in ("val-source", "val-target", "test-source", "test-target"):
        sub.add_argument(f"--{name}", type=Path, metavar="F", help="is copied as it is")
    sub.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help="endings of the files (default: en de)")
    sub.add_argument("--vocab-size", type=int, metavar="N", help="pieces of the vocabulary "
                     "(default: 37000; of a public data set what is usual with it)")
    sub.add_argument("--max-words", type=int, metavar="N", help="longer training pairs are dropped (default: 80)")
    sub.add_argument("--max-ratio", type=float, metavar="R",
                     help="training pairs whose sides differ more in words are dropped (default: 9)")
    sub.add_argument("--max-length", type=int, metavar="N",
                     help="pairs of more tokens on a side are not encoded (default: 256)")
    sub.add_argument("--sample", type=int, metavar="N", help="pairs to learn the vocabulary from (default: 1000000)")
    sub.add_argument("--byte-fallback", action="store_true", default=None,
                     help="spell characters that are not in the sample as bytes, instead of <unk>")
    sub.add_argument("--drop-overlap", action="store_true", default=None,
                     help="drop training pairs with a sentence of the val or test text, instead of only counting them")
    sub.add_argument("--workers", type=int, metavar="N", help="processes (default: one for each core)")


def add_learn(sub: argparse.ArgumentParser) -> None:
    actions = sub.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary)

    def add_directory(of: argparse.ArgumentParser) -> None:
        of.add_argument("--dir", type=Path, metavar="DIR", dest="exercises", default=Path("exercises"),
                        help="the directory of the exercises (default: exercises)")

    start = action("start", "lay the exercises out; files that are there stay as they are")
    start.add_argument("exercises", nargs="?", type=Path, metavar="DIR", default=Path("exercises"),
                       help="where to (default: exercises)")
    add_directory(action("list", "all exercises, and how far you are: found out by checking them"))
    check = action("check", "check your answers; exit code 0 if all pass, 1 if not")
    check.add_argument("name", nargs="?", metavar="ID|NN|FILE", help="an exercise, a lesson's number (default: all)")
    add_directory(check)
    hint = action("hint", "help in three steps: shapes, the rule in words, the formula")
    hint.add_argument("name", metavar="ID")
    hint.add_argument("number", nargs="?", type=int, choices=[1, 2, 3], default=1)
    action("solution", "the library's own code, and how it answers the exercise").add_argument("name", metavar="ID")
    reset = action("reset", "begin an exercise anew; what you had is kept beside it")
    reset.add_argument("name", metavar="ID")
    add_directory(reset)


def add_run(sub: argparse.ArgumentParser, checkpoint: bool = True) -> None:
    sub.add_argument("path", type=Path, metavar="RUN", help="a run's directory")
    if checkpoint:
        sub.add_argument("--checkpoint", metavar="C",
                         help="average, best, last or a file (default: the first of these that exists)")


def add_data(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--data", metavar="DIR", dest="directory",
                     help="directory with train.en, train.de, val.en, val.de (or .gz), or one that the command data "
                          "has prepared")
    for name in ("train-source", "train-target", "val-source", "val-target"):
        sub.add_argument(f"--{name}", metavar="F", help="a UTF-8 file, one sentence a line, instead of --data")


def add_scores(sub: argparse.ArgumentParser, other: str, summary: str) -> None:
    sub.add_argument("--paper", action="store_true", help="BLEU by the paper's script as well, and what makes the gap")
    sub.add_argument("--against", type=Path, metavar=other,
                     help=f"{summary}, and tell whether the difference is beyond chance")
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def add_search(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--beam", type=int, metavar="N", help="hypotheses followed at once; 1 is greedy (paper: 4)")
    sub.add_argument("--alpha", type=float, metavar="A", help="exponent of the length penalty (paper: 0.6)")
    add_machine(sub)


def add_machine(sub: argparse.ArgumentParser, threads: bool = True) -> None:
    sub.add_argument("--device", metavar="D", help="cpu, gpu, or gpu:N for the N-th from 0 (default: cpu; "
                     "train --resume: as before)")
    sub.add_argument("--precision", metavar="P", help="of weights and activations on a GPU: fp32, tf32, bf16 or fp16 "
                     "(default: tf32 for train, fp32 to translate)")
    if threads:
        sub.add_argument("--threads", type=int, metavar="N",
                         help="cores to use, 0 for all (default: all; train --resume: as before)")


def add_settings(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                     help="change a setting, as P_drop=0.3 or training.warmup=1000")


# Configuration --------------------------------------------------------------------------------------------------------


PATHS = ["data.directory", "data.train_source", "data.train_target", "data.val_source", "data.val_target"]
"""Settings that name files. They are stored as absolute paths, so that a run can be resumed from anywhere."""


def named_config(name: str) -> Config:
    """A preset, or a TOML file if the name looks like one."""
    return configs.load(Path(name)) if name.endswith(".toml") else configs.preset(name)


def changed(config: Config, args: argparse.Namespace) -> Config:
    """The configuration with what --set and the options for single settings say."""
    settings = dict(configs.parse_setting(text) for text in args.settings)
    options = {"training.seed": "seed", "training.minutes": "minutes", "training.threads": "threads",
               "training.device": "device", "training.precision": "precision",
               **{path: path[5:] for path in PATHS}}
    for key, option in options.items():
        if getattr(args, option, None) is not None:
            settings[key] = getattr(args, option)
    if settings.get("training.device") == "cpu":                                   # a GPU's precision stays there
        settings.setdefault("training.precision", "")
    config = configs.with_settings(config, settings)
    named = {key: path for key, path in configs.flat(config).items() if key in PATHS and path}
    return configs.with_settings(config, {key: os.path.abspath(path) for key, path in named.items()})


def show_config(args: argparse.Namespace) -> None:
    from scratchformer.study import sizes

    config = changed(named_config(args.preset), args)
    require_processes(args.nproc, config)
    print(configs.to_toml(config))
    print("\n".join(f"# {line}" for line in [*sizes.summary(config), *sizes.step_summary(config, args.nproc)]))


# Training -------------------------------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> int:
    if not (args.timeout == 0 or args.timeout >= 1):
        raise UserError(f"--timeout {args.timeout:g} must be at least 1 second, or 0")
    with launcher.joined(args.timeout) as ranks:                                   # before anything can go wrong:
        run, config = asked_to_train(args)                                         # all ranks end, and one says why
        require_processes(args.nproc, config)
        if args.nproc > 1 and not launcher.is_rank():
            return train_as_ranks(args, run, config)
        with redirect_stderr(Patient(sys.stderr)):
            return train_as_one(args, run, config, ranks)


class Patient:
    """A text file that does not mind if nobody reads it any more: training goes on, and the log has everything."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, text: str) -> int:
        try:
            self.file.write(text)
            self.file.flush()
        except OSError:                                                            # from here on it goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def asked_to_train(args: argparse.Namespace) -> tuple[RunDirectory, Config]:
    """What to train, and where."""
    from scratchformer.training.run import RunDirectory

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
    if not names_text(config):
        for corpus in PUBLIC:
            if preset.startswith(corpus):
                raise UserError(f"{preset}: from which text? `scratchformer data {corpus} --out DIR` prepares its own; "
                                "then give --data DIR")


def names_text(config: Config) -> bool:
    return any(configs.flat(config)[path] for path in PATHS)


def following_data(config: Config, args: argparse.Namespace) -> tuple[Config, str]:
    """The configuration with what the preparation of its text has settled, and a line on that: what --set names stays.
    """
    from scratchformer.training.run import follow_preparation

    return follow_preparation(config, [configs.parse_setting(text)[0] for text in args.settings])


def require_processes(nproc: int, config: Config) -> None:
    if nproc < 1:
        raise UserError(f"--nproc {nproc} must be at least 1")
    configs.require_work_for(config, nproc)


def train_as_ranks(args: argparse.Namespace, run: RunDirectory, config: Config) -> int:
    """Let `--nproc` processes do what this command says."""
    for key, path in configs.flat(config).items():
        if key in PATHS and path and Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
            raise UserError(f"{path}: {args.nproc} processes cannot all read it, since it is not a file on disk")
    code = launcher.launch(launcher.command_of(args.arguments), args.nproc)
    if code not in (0, 2):                                                         # 2: perhaps it is another job's run
        run.remove_unfinished()
    if code == 1 and run.config_file.exists():
        print(f"{run.path}: what is saved is sound; {how_to_go_on(args, run)}", file=sys.stderr)
    return code


def how_to_go_on(args: argparse.Namespace, run: RunDirectory) -> str:
    command = f"go on with: scratchformer train --resume {shlex.quote(str(run.path))}"
    return f"{command} --nproc {args.nproc}" if args.nproc > 1 else command


def train_as_one(args: argparse.Namespace, run: RunDirectory, config: Config, ranks: Communicator) -> int:
    """Train, alone or as one of several processes; of these the first one speaks."""
    from scratchformer.nn.fast_ops import keep_freed_memory
    from scratchformer.training import loop

    def tell(line: str) -> None:
        if ranks.rank == 0:
            print(line, file=sys.stderr, flush=True)

    keep_freed_memory()
    if args.resume:
        trainer, complaints = loop.resume(run, config, ranks)
        for complaint in complaints:
            tell(f"passed over {complaint}")
        tell(f"{run.path}: going on after step {trainer.progress.step}")
    else:
        config, followed = following_data(config, args)
        if followed:
            tell(followed)
        trainer = loop.begin(run, config, ranks)
    tell(f"{run.path}: {trainer.summary()}")
    reason = loop.train(trainer)
    if ranks.rank == 0:
        draw_training(run, config)
    tell(f"{run.path}: {reason}; step {trainer.progress.step}, {trainer.progress.target_tokens} target tokens. "
         f"Figures are in {run.figures}; {how_to_go_on(args, run)}")
    return launcher.INTERRUPTED if reason == loop.INTERRUPTED else 0


def draw_training(run: Any, config: Config) -> None:
    """The loss and learning-rate figures of a run, if it has taken a step."""
    from scratchformer.study import figures

    steps = run.read_log("step")
    if steps:
        figures.save(loss_figure(run), run.figures / "loss.png")
        figures.save(schedule_figure(run, config), run.figures / "schedule.png")


def loss_figure(run: Any) -> Any:
    from scratchformer.study import figures

    return figures.loss_figure(run.read_log("step"), run.read_log("validation"), run.read_log("bleu"))


def schedule_figure(run: Any, config: Config) -> Any:
    from scratchformer.study import figures

    settings = config.training
    return figures.schedule_figure(config.model.d_model, settings.warmup, settings.lr_factor, settings.steps,
                                   run.read_log("step"))


def average(args: argparse.Namespace) -> None:
    from scratchformer.training import checkpoints
    from scratchformer.training.run import RunDirectory

    run = RunDirectory(args.path)
    run.require()
    n = configs.load(run.config_file).training.average_last if args.last is None else args.last
    paths = run.checkpoints.steps()
    if not 1 <= n <= len(paths):
        raise UserError(f"{run.path}: cannot average the last {n} checkpoints; there are {len(paths)}")
    checkpoints.save(run.checkpoints.average, checkpoints.average(paths[-n:]))
    print(f"{run.checkpoints.average}: the mean of {paths[-n].name} to {paths[-1].name} ({n} checkpoints)")


def export(args: argparse.Namespace) -> None:
    from scratchformer.training.run import RunDirectory
    from scratchformer.training.torch_format import export_run, how_to_load

    config = export_run(RunDirectory(args.path), args.checkpoint, args.file)
    print(f"{args.file}: written. To load it into PyTorch:", file=sys.stderr)
    print(how_to_load(config.model, args.file), end="")


def import_(args: argparse.Namespace) -> None:
    from scratchformer.training.run import RunDirectory
    from scratchformer.training.torch_format import import_run

    if not import_run(args.file, RunDirectory(args.out)):
        print(f"{args.file}: its weights have changed since it was exported", file=sys.stderr)
    print(f"{args.out}: a run with the weights of {args.file}; try scratchformer translate {args.out}")


# Translation ----------------------------------------------------------------------------------------------------------


def search_options(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Beam and alpha, from the options or else from the run's configuration."""
    decoding = configs.load(path / "config.toml").decoding
    changes = {f"decoding.{name}": getattr(args, name) for name in ("beam", "alpha") if getattr(args, name) is not None}
    decoding = configs.with_settings(Config(decoding=decoding), changes).decoding
    return {"beam": decoding.beam, "alpha": decoding.alpha}


def translate(args: argparse.Namespace) -> None:
    translator = trained_translator(args, args.path, args.checkpoint)
    options = search_options(args, args.path)
    if not 1 <= args.nbest <= options["beam"]:
        raise UserError(f"--nbest {args.nbest} must lie between 1 and the beam, {options['beam']}")
    lines = input_lines(args.files)
    for number, best in enumerate(translator.stream(lines, **options, nbest=args.nbest, interactive=waits(args)), 1):
        for translation in best:
            print(f"{number}\t{translation.score:.4f}\t{translation.text}" if args.nbest > 1 else translation.text,
                  flush=waits(args))


def trained_translator(args: argparse.Namespace, path: Path, checkpoint: str | Path | None) -> Translator:
    """The model of a run, on the device or on as many cores as the options say."""
    from scratchformer.gpu.device import open_device
    from scratchformer.nn.fast_ops import keep_freed_memory
    from scratchformer.training.run import load_run
    from scratchformer.training.team import available_cores

    if args.threads is not None and args.threads < 0:
        raise UserError(f"--threads {args.threads} must be at least 0")
    keep_freed_memory()
    machine = configs.with_settings(Config(), {"training.device": "cpu" if args.device is None else args.device,
                                               "training.precision": args.precision or ""}).training
    device = open_device(machine.device, machine.precision or "fp32")
    translator = load_run(path, checkpoint)
    device.take_over(translator.model)
    translator.group *= device.breadth
    translator.threads = 1 if device.runs_ahead else args.threads or available_cores()
    return translator


def waits(args: argparse.Namespace) -> bool:
    """Whether a person types the lines and waits for each."""
    return not args.files and sys.stdin is not None and sys.stdin.isatty()


def input_lines(files: list[Path]) -> Iterator[str]:
    """The lines of the files, or of standard input as they come."""
    from scratchformer.text.corpora import read_lines

    for path in files:
        yield from read_lines(path)
    if not files:
        if sys.stdin is None:
            raise UserError("standard input is closed")
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise UserError(f"standard input, line {number}: not UTF-8") from None


def evaluate(args: argparse.Namespace) -> None:
    from scratchformer.study import evaluation
    from scratchformer.training.run import RunDirectory

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
    results = [evaluation.Evaluation(system, files, evaluation.assess(lines, references, language))
               for system, lines in zip(systems, translations)]
    for result in results:
        keep_scores(result.system.run, result.as_record())
    comparisons = evaluation.compare(translations[0], translations[1], references) if args.against else []
    print_scores(args.json, results, comparisons, [system.name for system in systems])


def trained_system(args: argparse.Namespace, path: Path, checkpoint: str | None) -> System:
    from scratchformer.study.evaluation import System
    from scratchformer.training.checkpoints import step_of
    from scratchformer.training.run import RunDirectory, checkpoint_file

    run = RunDirectory(path)
    run.require()
    file, options = checkpoint_file(run.checkpoints, checkpoint), search_options(args, path)
    translator = trained_translator(args, path, file)                              # reads all of it: now it is sound
    return System(run, file, step_of(file), translator, **options)


def keep_scores(run: RunDirectory, scores: dict[str, Any]) -> None:
    """Add the scores to those of the run. A run that can only be read is no reason to fail."""
    try:
        run.record_evaluation(scores)
    except UserError as error:
        print(f"scores not kept: {error}", file=sys.stderr)


def score(args: argparse.Namespace) -> None:
    from scratchformer.study import evaluation

    files = [args.hypotheses, args.against] if args.against else [args.hypotheses]
    parallel = [evaluation.read_parallel(file, args.reference) for file in files]
    translations, references = [lines for lines, _ in parallel], parallel[0][1]
    language = args.language if args.paper else None
    results = [evaluation.assess(lines, references, language) for lines in translations]
    comparisons = evaluation.compare(translations[0], translations[1], references) if args.against else []
    print_scores(args.json, results, comparisons, [str(file) for file in files])


def print_scores(as_json: bool, results: Sequence[Assessment | Evaluation], comparisons: list[Comparison],
                 names: list[str]) -> None:
    """The scores of one system or of two, and in the latter case their comparison."""
    from scratchformer.study.evaluation import comparison_as_text

    if as_json:
        first, *others = [result.as_json() for result in results]
        both = {"against": others[0], "comparison": [each._asdict() for each in comparisons]} if others else {}
        print(json.dumps(first | both))
    else:
        print("\n\n".join([result.as_text() for result in results]
                          + ([comparison_as_text(comparisons, *names)] if comparisons else [])))


# Looking closer -------------------------------------------------------------------------------------------------------


def gradcheck(args: argparse.Namespace) -> int:
    from scratchformer.study import gradient_cases

    if not args.json:
        print(f"{'layer':26} {'parameter or input':50} {'worst relative error':>20}  verdict")
    passed = True
    for layer, cases in groupby(gradient_cases.run(args.layers or None), key=lambda checked: checked[0].layer):
        worst: dict[str, Any] = {}
        for case, report in cases:
            passed &= report.passed
            for entry in report:
                if args.json:
                    print(json.dumps({"layer": layer, "case": case.description, **entry._asdict(),
                                      "passed": entry.passed}))
                if entry.name not in worst or not entry.error <= worst[entry.name].error:
                    worst[entry.name] = entry
        for entry in worst.values():
            if not args.json:
                verdict = "ok" if entry.passed else "WRONG"
                print(f"{layer:26} {entry.name:50} {entry.error:20.1e}  {verdict}", flush=True)
    if not args.json:
        print("every gradient agrees with finite differences" if passed else "some gradients are WRONG")
    return 0 if passed else 1


def doctor(args: argparse.Namespace) -> int:
    from scratchformer.study.doctor.diagnosis import Diagnosis, as_record, as_text, examine
    from scratchformer.training.run import RunDirectory

    run = RunDirectory(Path(args.preset)) if is_directory(args.preset) else None
    if run:
        run.require()
    elif os.sep in args.preset and not args.preset.endswith(".toml"):
        raise UserError(f"{args.preset}: neither a run's directory nor a preset nor a TOML file")
    config = changed(configs.load(run.config_file) if run else named_config(args.preset), args)
    if run:
        configs.require_same(configs.load(run.config_file), config, run.config_file)
    else:
        config, _ = following_data(config, args)
    findings = []
    for finding in examine(config, run, args.code):
        findings.append(finding)
        print(json.dumps(as_record(finding)) if args.json else as_text(finding), flush=True)
    diagnosis = Diagnosis(findings)
    if args.json:
        print(json.dumps({"probe": "diagnosis", "verdict": "ok" if diagnosis.passed else "FAIL",
                          "seen": str(diagnosis), "suspects": diagnosis.suspects}))
    else:
        print(f"\n{textwrap.fill(str(diagnosis), 120, break_long_words=False, break_on_hyphens=False)}")
    return 0 if diagnosis.passed else 1


def is_directory(name: str) -> bool:
    """Whether this is a run's directory, and not the name of a preset that a directory happens to bear as well."""
    return Path(name).is_dir() and name not in configs.PRESETS and name not in configs.TABLE3


def plot(args: argparse.Namespace) -> None:
    from scratchformer.study import figures
    from scratchformer.training.run import RunDirectory, load_run

    run = RunDirectory(args.path)
    run.require()
    if args.figure == "loss":
        figure = loss_figure(run)
    elif args.figure == "schedule":
        figure = schedule_figure(run, configs.load(run.config_file))
    elif args.figure == "positions":
        figure = figures.positions_figure(load_run(args.path, args.checkpoint).model)
    else:
        figure = figures.attention_figure(load_run(args.path, args.checkpoint), args.sentence)
    print(figures.save(figure, args.out or run.figures / f"{args.figure}.png"))


def plan(args: argparse.Namespace) -> int:
    from scratchformer.nn.fast_ops import keep_freed_memory
    from scratchformer.study import plan as planning

    config, _ = following_data(changed(named_config(args.preset), args), args)
    require_processes(args.nproc, config)
    keep_freed_memory()
    made = planning.make(args.preset, config, names_text(config), args.nproc, args.seconds)
    print(json.dumps(planning.as_record(made)) if args.json else planning.as_text(made))
    return 0 if made.fits else 1


def report(args: argparse.Namespace) -> None:
    from scratchformer.study.report import write_report
    from scratchformer.training.run import RunDirectory

    print(write_report(RunDirectory(args.path), args.out, args.tflops))


def ablate(args: argparse.Namespace) -> int:
    from scratchformer.study import ablation, ablation_tables
    from scratchformer.training.team import available_cores

    require_positive(args, "seeds", "jobs")
    task, rows, cores = ablation.TASKS[args.on], ablation.chosen_rows(args.rows), available_cores()
    ablation.require_rows_own(task, rows, [configs.parse_setting(text)[0] for text in args.settings])
    jobs = args.jobs or (1 if (args.device or "cpu") != "cpu" else cores)
    args.directory = args.data or ablation.written_text(args.on, args.out)
    args.threads = max(1, cores // jobs)

    def trial(row: str, seed: int) -> ablation.Trial:
        config, _ = following_data(changed(task.config(row, seed), args), args)
        return ablation.Trial(row, seed, config, args.out)

    asked = [trial(row, seed) for seed in range(args.seeds) for row in rows]
    try:
        failures = ablation.carry_out(asked, jobs, tell_on_stderr)
    finally:
        others = [trial(row, seed) for row, seed in ablation.on_disk(args.out) if row not in rows or seed >= args.seeds]
        for line in ablation_tables.write(args.on, [*asked, *(each for each in others if each.is_same())], args.out):
            tell_on_stderr(line)
    return 1 if failures else 0


def require_positive(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UserError(f"--{name} {getattr(args, name)} must be at least 1")


def learn(args: argparse.Namespace) -> int:
    from scratchformer.study.exercises import workbook

    if args.action == "start":
        workbook.say("\n".join(workbook.start(args.exercises)))
    elif args.action == "list":
        for exercise, state in workbook.states(args.exercises):
            workbook.say(f"{exercise.id:34} {exercise.kind:9} {state:12} {exercise.title}")
    elif args.action == "check":
        return 0 if workbook.check_files(workbook.files(args.name, args.exercises)) else 1
    elif args.action == "hint":
        workbook.say(workbook.hint(workbook.one_named(args.name), args.number))
    elif args.action == "solution":
        workbook.say(workbook.solution(workbook.one_named(args.name)))
    else:
        workbook.say(workbook.reset(workbook.one_named(args.name), args.exercises))
    return 0


PREPARATION = ["vocab_size", "max_words", "max_ratio", "max_length", "sample", "byte_fallback", "drop_overlap",
               "workers"]
FILES = ["source", "target", "val_source", "val_target", "test_source", "test_target", "languages"]
"""The options of `data`: how to prepare text, as in `preparation.Options`, and what `data files` prepares."""


def data(args: argparse.Namespace) -> None:
    if args.name == "tiny":
        from scratchformer.text import grammar

        refuse(args, *PREPARATION, *FILES, "mirror")
        print("\n".join(grammar.write_corpus(args.out)))
    elif args.name == "files":
        refuse(args, "mirror")
        languages = {"languages": tuple(args.languages)} if args.languages else {}
        prepare(args, named_files(args), preparation_options(args, languages))
    else:
        from scratchformer.text.datasets import DATASETS, fetch
        from scratchformer.text.preparation import require_own_directory

        refuse(args, *FILES)
        dataset = DATASETS[args.name]
        options = preparation_options(args, {"dataset": args.name, "vocab_size": dataset.vocab_size,
                                             "languages": (dataset.source_language, dataset.target_language)})
        require_own_directory(args.out, options.languages)                         # before gigabytes are loaded
        prepare(args, fetch(dataset, args.out, args.mirror or "", tell_on_stderr), options)


def refuse(args: argparse.Namespace, *names: str) -> None:
    """Raises UserError if one of these options was given."""
    for name in names:
        if getattr(args, name):
            raise UserError(f"data {args.name}: takes no --{name.replace('_', '-')}")


def named_files(args: argparse.Namespace) -> CorpusFiles:
    from scratchformer.text.corpora import CorpusFiles, ParallelFiles

    def pair(source: Path | None, target: Path | None) -> ParallelFiles | None:
        return ParallelFiles(source, target) if source and target else None

    counts = {(len(args.source), len(args.target)), (bool(args.val_source), bool(args.val_target)),
              (bool(args.test_source), bool(args.test_target))}
    if any(n_source != n_target for n_source, n_target in counts) or not args.source:
        raise UserError("source and target files come in pairs: give --source with --target, --val-source with "
                        "--val-target, --test-source with --test-target")
    train = [ParallelFiles(*part) for part in zip(args.source, args.target)]
    return CorpusFiles(train, pair(args.val_source, args.val_target), pair(args.test_source, args.test_target))


def preparation_options(args: argparse.Namespace, defaults: dict[str, Any]) -> Options:
    from scratchformer.text.preparation import Options
    from scratchformer.training.team import available_cores

    given = {name: getattr(args, name) for name in PREPARATION if getattr(args, name) is not None}
    return Options(**{"workers": available_cores()} | defaults | given)


def prepare(args: argparse.Namespace, files: CorpusFiles, options: Options) -> None:
    """Prepare these files, and tell how to go on."""
    from scratchformer.text import preparation

    manifest = preparation.prepare(files, args.out, options, tell_on_stderr)
    print(manifest.summary())
    for preset in [name for name in configs.PRESETS if name.startswith(args.name)] or ["PRESET"]:
        print(f"train with: scratchformer train {preset} --data {shlex.quote(str(args.out))} --out RUN")


def tell_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def demo(args: argparse.Namespace) -> int:
    from scratchformer.nn.fast_ops import keep_freed_memory
    from scratchformer.study.demo import run_demo

    keep_freed_memory()
    return 0 if run_demo(args.out) else 130
