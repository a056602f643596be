"""The command line: one command, `scratchformer`, with a subcommand for everything a user does.

Here is what can be said; what is done about it is in `scratchformer.commands`.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import scratchformer
from scratchformer import config as configs
from scratchformer.commands.terminal import to_nowhere
from scratchformer.errors import UserError, in_one_line
from scratchformer.parallel import launcher
from scratchformer.parallel.communicator import Abandoned

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
    if sys.stderr is None:  # closed: keep files off its number
        to_nowhere(2)
        sys.stderr = open(2, "w")
    args = parse(arguments)
    try:
        code = command_function(args.run)(args) or 0
        print(end="", flush=True)  # while a failure can still be told
        return code
    except UserError as error:
        print(f"scratchformer: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `... | head` has read enough
        discard_unwritable_output()
        return 0
    except (OSError, MemoryError) as error:  # a full disk, a model too large
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


def command_function(path: str) -> Callable[[argparse.Namespace], int | None]:
    """training.train -> the function. Its module is read only now, so that --help need not wait for any."""
    module, name = path.split(".")
    return getattr(importlib.import_module(f"scratchformer.commands.{module}"), name)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """As argparse does; but it ends the list of files of `translate` at the first option if none came before it, so
    files that stand behind an option are put back."""
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
        to_nowhere(sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter  # keeps the lines of the examples
    top = argparse.ArgumentParser(
        prog="scratchformer", description=scratchformer.__doc__, epilog=EXAMPLES, formatter_class=raw
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: str, summary: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name, help=summary, description=summary, formatter_class=raw, epilog=f"example:\n  scratchformer {example}"
        )
        sub.set_defaults(run=run)
        return sub

    sub = command(
        "train",
        "training.train",
        "train a model, or go on with one",
        "train multi30k --data DIR --out runs/m30k --set P_drop=0.2 --set training.steps=5000\n"
        "  scratchformer train --resume runs/m30k --minutes 30",
    )
    sub.add_argument(
        "preset",
        nargs="?",
        metavar="PRESET|FILE.toml",
        help=f"{', '.join(configs.PRESETS)}, a row of Table 3 ({', '.join(configs.TABLE3)}), "
        "or a TOML file (default: tiny)",
    )
    add_data(sub)
    sub.add_argument("--out", type=Path, metavar="RUN", help="the run's directory (default: runs/PRESET)")
    sub.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this directory")
    sub.add_argument("--seed", type=int, metavar="N", help="of weights, batches and dropout (default: 0)")
    sub.add_argument("--minutes", type=float, metavar="M", help="stop after this much wall time")
    add_machine(sub, "tf32", resumed="; with --resume as before")
    sub.add_argument(
        "--nproc",
        type=int,
        default=1,
        metavar="N",
        help="train with N processes of this machine, each with a GPU or some of the cores of its own",
    )
    sub.add_argument(
        "--timeout",
        type=float,
        default=1800,
        metavar="S",
        help="end the job when one of its processes shows no sign of life for S seconds, more than it "
        "takes to read the text, to learn the tokenizer, to validate or to save "
        "(default: 1800; 0: never)",
    )
    add_settings(sub)

    sub = command(
        "translate",
        "translation.translate",
        "translate files, or standard input, to standard output",
        "translate runs/tiny --beam 4 sentences.en > sentences.de",
    )
    add_run(sub)
    sub.add_argument("files", nargs="*", type=Path, metavar="FILE", help="text to translate (default: standard input)")
    sub.add_argument(
        "--nbest",
        type=int,
        default=1,
        metavar="N",
        help="print the N best translations of each line, as line number, score and text, tab-separated",
    )
    add_search(sub)

    sub = command(
        "evaluate",
        "scoring.evaluate",
        "translate a test set and score it: sacreBLEU and chrF",
        "evaluate runs/m30k --paper\n"
        "  scratchformer evaluate runs/m30k --source test.en.gz --reference test.de.gz --json\n"
        "  scratchformer evaluate runs/big --against runs/base",
    )
    add_run(sub)
    sub.add_argument(
        "--source",
        type=Path,
        metavar="F",
        help="text to translate, one sentence a line; with "
        "--reference (default: the test split of the run's data directory)",
    )
    sub.add_argument("--reference", type=Path, metavar="F", help="its translation, line by line")
    sub.add_argument("--output", type=Path, metavar="F", help="write the translations to this file as well")
    add_scores(sub, "RUN", "translate with this run as well")
    sub.add_argument("--against-checkpoint", metavar="C", help="as --checkpoint, of the other run")
    add_search(sub)

    sub = command(
        "score",
        "scoring.score",
        "score translations that are there already: sacreBLEU and chrF",
        "score translations.de --reference test.de --paper",
    )
    sub.add_argument("hypotheses", type=Path, metavar="FILE", help="translations, plain text, one sentence a line")
    sub.add_argument("--reference", type=Path, required=True, metavar="F", help="what they should be, line by line")
    add_scores(sub, "FILE", "score these translations as well")
    sub.add_argument("--language", default="de", metavar="L", help="of the text, for --paper (default: de)")

    sub = command(
        "average",
        "runs.average",
        "average the weights of a run's last checkpoints; later commands use the average",
        "average runs/m30k --last 10",
    )
    sub.add_argument("--last", type=int, metavar="N", help="how many (default: the run's training.average_last)")
    add_run(sub, checkpoint=False)

    sub = command(
        "export",
        "runs.export",
        "write a run's weights as a safetensors file that another library can load",
        "export runs/tiny --to torch tiny.safetensors",
    )
    add_run(sub)
    sub.add_argument(
        "--to",
        choices=["torch"],
        required=True,
        help="torch: the state dict of nn.TransformerEncoder, " "nn.TransformerDecoder and the embeddings",
    )
    sub.add_argument("file", type=Path, metavar="FILE")

    sub = command(
        "import", "runs.import_", "make a run of an exported file", "import tiny.safetensors --out runs/imported"
    )
    sub.add_argument("file", type=Path, metavar="FILE")
    sub.add_argument("--out", type=Path, required=True, metavar="RUN", help="the directory of the new run")

    sub = command(
        "gradcheck",
        "checks.gradcheck",
        "compare every hand-written gradient with finite differences",
        "gradcheck SelfAttention LayerNorm",
    )
    sub.add_argument("layers", nargs="*", metavar="LAYER", help="class names (default: all)")
    sub.add_argument("--json", action="store_true", help="print one JSON object per line")

    sub = command(
        "doctor",
        "checks.doctor",
        "find out why it does not learn: probe the code, a configuration, text and machine",
        "doctor multi30k --data DIR --set training.warmup=100\n  scratchformer doctor runs/tiny --json",
    )
    sub.add_argument(
        "preset",
        nargs="?",
        default="tiny",
        metavar="PRESET|FILE.toml|RUN",
        help="as for train, or a run's directory: then its weights and its log are examined, too",
    )
    add_data(sub)
    sub.add_argument("--code", action="store_true", help="only the code: not the configuration, the text, the machine")
    sub.add_argument("--json", action="store_true", help="print one JSON object per probe, and one for the diagnosis")
    add_settings(sub)

    sub = command("plot", "figures.plot", "draw a figure of a run", "plot runs/tiny loss --out loss.svg")
    add_run(sub)
    sub.add_argument("figure", choices=["attention", "positions", "schedule", "loss"])
    sub.add_argument(
        "--sentence",
        default="The animal did not cross the street because it was too tired.",
        help="for attention: the sentence to translate",
    )
    sub.add_argument("--out", type=Path, metavar="FILE", help="PNG or SVG (default: RUN/figures/FIGURE.png)")

    sub = command(
        "data",
        "data.data",
        "download a public corpus, or take text files, and prepare them for training",
        "data wmt14-en-de --out data/wmt14-en-de\n  scratchformer data tiny --out text/tiny\n"
        "  scratchformer data files --source big.en.gz --target big.de.gz --val-source val.en "
        "--val-target val.de --out DIR",
    )
    sub.add_argument(
        "name",
        choices=[*configs.PUBLIC_CORPORA, "files", "tiny"],
        help="a public data set; files: your own; tiny: the bundled corpus, as plain text",
    )
    sub.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the same command goes on there after a stop"
    )
    sub.add_argument("--mirror", metavar="URL", help="takes the place of scheme and host of every download")
    add_preparation(sub)

    sub = command(
        "config",
        "costs.show_config",
        "print a configuration as TOML, with its parameter count and memory",
        "config base --set h=16 > base16.toml",
    )
    sub.add_argument("preset", metavar="PRESET|FILE.toml")
    sub.add_argument("--nproc", type=int, default=1, metavar="N", help="and how N processes would share a step")
    add_settings(sub)

    sub = command(
        "plan",
        "costs.plan",
        "what a run will cost before it begins: FLOPs, memory, hours from measured steps",
        "plan base --device gpu --precision bf16\n  scratchformer plan multi30k --data DIR --json",
    )
    sub.add_argument("preset", metavar="PRESET|FILE.toml")
    add_data(sub)
    add_machine(sub, "tf32")
    sub.add_argument(
        "--nproc",
        type=int,
        default=1,
        metavar="N",
        help="processes that would share a step; one is measured, with its share",
    )
    sub.add_argument(
        "--seconds", type=float, default=20, metavar="S", help="about how long to take training steps (default: 20)"
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(sub)

    sub = command(
        "report",
        "reports.report",
        "write what a run was, what it reached and what it cost, beside the paper",
        "report runs/m30k --tflops 0.2",
    )
    add_run(sub, checkpoint=False)
    sub.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RUN/report)")
    sub.add_argument(
        "--tflops",
        type=float,
        metavar="X",
        help="what the machine can sustain, in TFLOPS of all its devices together: then the report says "
        "which share of it the run has used",
    )

    sub = command(
        "ablate",
        "ablation.ablate",
        "train the rows of the paper's Table 3 at a smaller scale, and judge its claims",
        "ablate --rows A,D1 --on tiny --seeds 3 --out runs/ablations\n"
        "  scratchformer ablate --on multi30k --data DIR --out runs/ablations-m30k --device gpu",
    )
    add_ablate(sub)

    sub = command(
        "learn",
        "learn.learn",
        "write the backward passes yourself, with a checker that says what is wrong",
        "learn start\n  scratchformer learn check 01_linear_backward\n"
        "  scratchformer learn hint 01_linear_backward 2",
    )
    add_learn(sub)

    sub = command("demo", "demo.demo", "train tiny, translate held-out sentences, score them", "demo --out runs/demo")
    sub.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="RUN")
    return top


def add_ablate(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--rows",
        default="A,B,C,D,E",
        metavar="LIST",
        help="groups or rows of Table 3, as A,C1,big (default: A,B,C,D,E; the base model is always there)",
    )
    sub.add_argument("--on", choices=["tiny", "multi30k", "wmt14"], default="tiny", help="the text (default: tiny)")
    sub.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each row (default: 3)")
    sub.add_argument("--data", metavar="DIR", help="the text; tiny has its own")
    sub.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="directory of the runs and of what comes of them; the same command goes on after a stop",
    )
    sub.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs at a time, each on its share of the cores (default: one a core; one on a GPU)",
    )
    add_machine(sub, "tf32", threads=False)
    add_settings(sub)


def add_preparation(sub: argparse.ArgumentParser) -> None:
    """The files of `data files`, and the options of a preparation, with the defaults of `preparation.Options`."""
    for side in ("source", "target"):
        sub.add_argument(
            f"--{side}",
            type=Path,
            action="append",
            default=[],
            metavar="F",
            help="training text, UTF-8, one sentence a line, plain or .gz; may be given several times",
        )
    for name, use in (("val", "while it is trained"), ("test", "afterwards")):
        for side in ("source", "target"):
            sub.add_argument(
                f"--{name}-{side}", type=Path, metavar="F", help=f"text to look at {use}; it is not cleaned"
            )
    sub.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help="endings of the files (default: en de)")
    sub.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="pieces of the vocabulary " "(default: 37000; of a public data set what is usual with it)",
    )
    sub.add_argument("--max-words", type=int, metavar="N", help="longer training pairs are dropped (default: 80)")
    sub.add_argument(
        "--max-ratio",
        type=float,
        metavar="R",
        help="training pairs whose sides differ more in words are dropped (default: 9)",
    )
    sub.add_argument(
        "--max-length", type=int, metavar="N", help="pairs of more tokens on a side are not encoded (default: 256)"
    )
    sub.add_argument("--sample", type=int, metavar="N", help="pairs to learn the vocabulary from (default: 1000000)")
    sub.add_argument(
        "--byte-fallback",
        action="store_true",
        default=None,
        help="spell characters that are not in the sample as bytes, instead of <unk>",
    )
    sub.add_argument(
        "--drop-overlap",
        action="store_true",
        default=None,
        help="drop training pairs with a sentence of the val or test text, instead of only counting them",
    )
    sub.add_argument("--workers", type=int, metavar="N", help="processes (default: one for each core)")


def add_learn(sub: argparse.ArgumentParser) -> None:
    actions = sub.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary)

    def add_directory(of: argparse.ArgumentParser) -> None:
        of.add_argument(
            "--dir",
            type=Path,
            metavar="DIR",
            dest="exercises",
            default=Path("exercises"),
            help="the directory of the exercises (default: exercises)",
        )

    start = action("start", "lay the exercises out; files that are there stay as they are")
    start.add_argument(
        "exercises",
        nargs="?",
        type=Path,
        metavar="DIR",
        default=Path("exercises"),
        help="where to (default: exercises)",
    )
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
        sub.add_argument(
            "--checkpoint", metavar="C", help="average, best, last or a file (default: the first of these that exists)"
        )


def add_data(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--data",
        metavar="DIR",
        dest="directory",
        help="directory with train.en, train.de, val.en, val.de (or .gz), or one that the command data " "has prepared",
    )
    for name in ("train-source", "train-target", "val-source", "val-target"):
        sub.add_argument(f"--{name}", metavar="F", help="a UTF-8 file, one sentence a line, instead of --data")


def add_scores(sub: argparse.ArgumentParser, other: str, summary: str) -> None:
    sub.add_argument("--paper", action="store_true", help="BLEU by the paper's script as well, and what makes the gap")
    sub.add_argument(
        "--against", type=Path, metavar=other, help=f"{summary}, and tell whether the difference is beyond chance"
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def add_search(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--beam", type=int, metavar="N", help="hypotheses followed at once; 1 is greedy (paper: 4)")
    sub.add_argument("--alpha", type=float, metavar="A", help="exponent of the length penalty (paper: 0.6)")
    add_machine(sub, "fp32")


def add_machine(sub: argparse.ArgumentParser, precision: str, resumed: str = "", threads: bool = True) -> None:
    """precision: by default, on a GPU;  resumed: what else the defaults depend on"""
    sub.add_argument("--device", metavar="D", help=f"cpu, gpu, or gpu:N for the N-th from 0 (default: cpu{resumed})")
    sub.add_argument(
        "--precision",
        metavar="P",
        help="of weights and activations on a GPU: fp32, tf32, bf16 or fp16 " f"(default: {precision}{resumed})",
    )
    if threads:
        sub.add_argument("--threads", type=int, metavar="N", help=f"cores to use, 0 for all (default: all{resumed})")


def add_settings(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="change a setting, as P_drop=0.3 or training.warmup=1000",
    )
