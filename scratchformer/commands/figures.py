"""Figures of a run."""

import argparse

from matplotlib.figure import Figure

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.experiments import figures
from scratchformer.training.run import RunDirectory, load_run


def plot(args: argparse.Namespace) -> None:
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
    """The loss and learning-rate figures of a run, if it has taken a step."""
    steps = run.read_log("step")
    if steps:
        figures.save(loss_figure(run), run.figures / "loss.png")
        figures.save(schedule_figure(run, config), run.figures / "schedule.png")


def loss_figure(run: RunDirectory) -> Figure:
    return figures.loss_figure(run.read_log("step"), run.read_log("validation"), run.read_log("bleu"))


def schedule_figure(run: RunDirectory, config: Config) -> Figure:
    settings = config.training
    return figures.schedule_figure(
        config.model.d_model, settings.warmup, settings.lr_factor, settings.steps, run.read_log("step")
    )
