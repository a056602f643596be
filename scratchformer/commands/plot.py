"""`scratchformer plot`: draw a figure of a run."""

from __future__ import annotations

import argparse

from scratchformer.commands.options import Commands, add_command, add_option, add_run, path, sentence
from scratchformer.errors import UserError

SENTENCE = "The animal did not cross the street because it was too tired."


def add(commands: Commands) -> None:
    parser = add_command(commands, "plot", plot)
    add_run(parser)
    figures = ["attention", "schedule", "loss"]
    parser.add_argument("figure", choices=figures, metavar="FIGURE", help=", ".join(figures))
    translated = f"for attention: the sentence to translate (default: {SENTENCE})"
    add_option(parser, "--sentence TEXT", sentence, translated)
    add_option(parser, "--out FILE", path, "PNG or SVG (default: RUN/figures/FIGURE.png)")


def plot(args: argparse.Namespace) -> None:
    """Draw a figure of a run.

    scratchformer plot runs/tiny loss --out loss.svg
    """
    from scratchformer.experiments import figures
    from scratchformer.training.run import RunDirectory, load_run, require_place

    if args.figure != "attention" and (args.sentence or args.checkpoint):
        raise UserError(f"--sentence and --checkpoint are for the figure attention; {args.figure} needs only the log")
    run = RunDirectory(args.path)
    run.require()
    if args.out:
        require_place(args.out, figures.MARK.encode())
    if args.figure == "loss":
        figure = figures.loss_figure(run)
    elif args.figure == "schedule":
        figure = figures.schedule_figure(run)
    else:
        figure = figures.attention_figure(load_run(args.path, args.checkpoint), args.sentence or SENTENCE)
    print(figures.save(figure, args.out) if args.out else figures.save_in_run(figure, run, args.figure))
