"""`scratchformer plot`: draw a figure of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scratchformer import config as configs
from scratchformer.commands.options import Commands, add_command, add_run
from scratchformer.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scratchformer.training.run import RunDirectory


def add(commands: Commands) -> None:
    parser = add_command(commands, "plot", plot, "draw a figure of a run", "plot runs/tiny loss --out loss.svg")
    add_run(parser)
    parser.add_argument("figure", choices=["attention", "positions", "schedule", "loss"])
    parser.add_argument(
        "--sentence",
        default="The animal did not cross the street because it was too tired.",
        help="for attention: the sentence to translate",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="PNG or SVG (default: RUN/figures/FIGURE.png)")


def plot(args: argparse.Namespace) -> None:
    from scratchformer.experiments import figures
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


def draw_training(run: RunDirectory, config: Config) -> None:
    """Save the loss and learning-rate figures of a run that has taken at least one step."""
    from scratchformer.experiments import figures

    if run.read_log("step"):
        figures.save(loss_figure(run), run.figures / "loss.png")
        figures.save(schedule_figure(run, config), run.figures / "schedule.png")


def loss_figure(run: RunDirectory) -> Figure:
    from scratchformer.experiments import figures

    return figures.loss_figure(run.read_log("step"), run.read_log("validation"), run.read_log("bleu"))


def schedule_figure(run: RunDirectory, config: Config) -> Figure:
    from scratchformer.experiments import figures

    settings = config.training
    return figures.schedule_figure(
        config.model.d_model, settings.warmup, settings.lr_factor, settings.steps, run.read_log("step")
    )
