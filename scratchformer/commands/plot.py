"""`scratchformer plot`: draw a figure of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, add_option, add_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scratchformer.training.run import RunDirectory


def add(commands: Commands) -> None:
    parser = add_command(commands, "plot", plot)
    add_run(parser)
    parser.add_argument("figure", choices=["attention", "positions", "schedule", "loss"])
    sentence = "The animal did not cross the street because it was too tired."
    parser.add_argument("--sentence", default=sentence, help="for attention: the sentence to translate")
    add_option(parser, "--out FILE", Path, "PNG or SVG (default: RUN/figures/FIGURE.png)")


def plot(args: argparse.Namespace) -> None:
    """Draw a figure of a run.

    scratchformer plot runs/tiny loss --out loss.svg
    """
    from scratchformer.experiments import figures
    from scratchformer.training.run import RunDirectory, load_run

    run = RunDirectory(args.path)
    run.require()
    if args.figure in ("loss", "schedule"):
        figure = training_figure(args.figure, run)
    elif args.figure == "positions":
        figure = figures.positions_figure(load_run(args.path, args.checkpoint).model)
    else:
        figure = figures.attention_figure(load_run(args.path, args.checkpoint), args.sentence)
    print(figures.save(figure, args.out or run.figures / f"{args.figure}.png"))


def draw_training(run: RunDirectory) -> None:
    """Save the loss and learning-rate figures of a run that has taken at least one step."""
    from scratchformer.experiments import figures

    if run.read_log("step"):
        for name in ("loss", "schedule"):
            figures.save(training_figure(name, run), run.figures / f"{name}.png")


def training_figure(name: str, run: RunDirectory) -> Figure:
    """Draw the loss or the learning rate ("schedule") of the steps in the run's log."""
    from scratchformer.experiments import figures

    steps = run.read_log("step")
    if name == "loss":
        return figures.loss_figure(steps, run.read_log("validation"), run.read_log("bleu"))
    config = configs.load(run.config_file)
    settings = config.training
    return figures.schedule_figure(config.model.d_model, settings.warmup, settings.lr_factor, settings.steps, steps)
