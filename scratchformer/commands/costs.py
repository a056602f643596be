"""What does a configuration come to, and what will a run of it cost?"""

import argparse
import json

from scratchformer import config as configs
from scratchformer.backends.cpu import keep_freed_memory
from scratchformer.commands.configuration import changed, following_data, named_config, require_processes
from scratchformer.experiments import plan as planning
from scratchformer.experiments import sizes


def show_config(args: argparse.Namespace) -> None:
    config = changed(named_config(args.preset), args)
    require_processes(args.nproc, config)
    print(configs.to_toml(config))
    print("\n".join(f"# {line}" for line in [*sizes.summary(config), *sizes.step_summary(config, args.nproc)]))


def plan(args: argparse.Namespace) -> int:
    config, _ = following_data(changed(named_config(args.preset), args), args)
    require_processes(args.nproc, config)
    keep_freed_memory()
    made = planning.make(args.preset, config, config.data.names_text, args.nproc, args.seconds)
    print(json.dumps(planning.as_record(made)) if args.json else planning.as_text(made))
    return 0 if made.fits else 1
