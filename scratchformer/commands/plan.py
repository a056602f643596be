"""`scratchformer plan`: estimate what a run will cost."""

import argparse
import json

from scratchformer import config as configs
from scratchformer.commands.configuration import adapt_to_data, load_config, with_options
from scratchformer.commands.options import (
    Commands,
    add_command,
    add_data,
    add_machine,
    add_nproc,
    add_option,
    add_settings,
    real,
    word,
)
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError


def add(commands: Commands) -> None:
    parser = add_command(commands, "plan", plan)
    parser.add_argument("preset", type=word, metavar="PRESET|FILE.toml")
    add_data(parser)
    add_machine(parser, "tf32")
    add_nproc(parser, "processes that would share a step; the share of one is measured")
    add_option(parser, "--seconds S", real(0.001, 3600), "how long to measure training steps (default: about 20)", 20)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser)


def plan(args: argparse.Namespace) -> int:
    """Estimate what a run will cost: FLOPs, memory, and hours from a few measured steps.

    scratchformer plan base --device gpu --precision bf16
    scratchformer plan multi30k --data DIR --json
    """
    from scratchformer.backends.cpu import keep_freed_memory
    from scratchformer.experiments import plan as planning

    config, _ = adapt_to_data(with_options(load_config(args.preset), args), args)
    if config.data.task != "translation":
        advice = f"`scratchformer doctor {args.preset}` estimates memory, disk and time"
        raise UserError(f"{args.preset}: plan is for translation, not for {config.data.task}; {advice}")
    configs.require_work_for(config, args.nproc)
    keep_freed_memory()
    made = planning.make(args.preset, config, config.data.names_text, args.nproc, args.seconds, tell)
    print(json.dumps(planning.as_record(made)) if args.json else planning.as_text(made))
    return 0 if made.fits else 1
