"""`scratchformer config`: print a configuration."""

import argparse

from scratchformer import config as configs
from scratchformer.commands.configuration import load_config, with_options
from scratchformer.commands.options import Commands, add_command, add_option, add_settings, within, word


def add(commands: Commands) -> None:
    parser = add_command(commands, "config", show_config)
    parser.add_argument("preset", type=word, metavar="PRESET|FILE.toml")
    add_option(parser, "--nproc N", within(1, 1000), "also show how N processes would share a step", 1)
    add_settings(parser)


def show_config(args: argparse.Namespace) -> None:
    """Print a configuration as TOML, with its parameter count, and the memory of the weights, gradients and moments.

    scratchformer config base --set h=16 > base16.toml
    """
    from scratchformer.experiments import sizes

    config = with_options(load_config(args.preset), args)
    configs.require_work_for(config, args.nproc)
    print(configs.to_toml(config))
    print("\n".join(f"# {line}" for line in [*sizes.summary(config), *sizes.step_summary(config, args.nproc)]))
