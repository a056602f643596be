"""`scratchformer doctor`: find out why a model does not learn."""

import argparse
import json
import os
from pathlib import Path

from scratchformer import config as configs
from scratchformer.commands.configuration import adapt_to_data, load_config, require_effect, with_options
from scratchformer.commands.options import Commands, add_command, add_data, add_settings, word
from scratchformer.errors import UserError


def add(commands: Commands) -> None:
    parser = add_command(commands, "doctor", doctor)
    preset = "as for train, or a run's directory: then its weights and its log are examined, too"
    parser.add_argument("preset", type=word, nargs="?", default="tiny", metavar="PRESET|FILE.toml|RUN", help=preset)
    add_data(parser)
    only_code = "examine only the code, not the configuration, the text and the machine"
    parser.add_argument("--code", action="store_true", help=only_code)
    records = "print one JSON object per probe, and one for the diagnosis"
    parser.add_argument("--json", action="store_true", help=records)
    add_settings(parser)


def doctor(args: argparse.Namespace) -> int:
    """Find out why a model does not learn: examine the code, a configuration, the text and the machine.

    scratchformer doctor multi30k --data DIR --set training.warmup=100
    scratchformer doctor gpt-tiny --text README.md docs/*.md
    scratchformer doctor runs/tiny --json
    """
    from scratchformer.doctor.diagnosis import Diagnosis, examine
    from scratchformer.doctor.findings import wrapped
    from scratchformer.training.run import RunDirectory

    if args.code and any(getattr(args, path.split(".")[1], None) for path in configs.PATHS):
        raise UserError("--code examines only the code: give no text, neither --data nor single files")
    run = RunDirectory(Path(args.preset)) if names_a_run(args.preset) else None
    made_with = run.require() if run else None
    if not run and os.sep in args.preset and not args.preset.endswith(".toml"):
        raise UserError(f"{args.preset}: neither a run's directory nor a preset nor a TOML file")
    config = with_options(made_with or load_config(args.preset), args)
    if run and made_with:
        configs.require_same(made_with, config, run.config_file)
    else:
        config, _ = adapt_to_data(config, args)
    require_effect(config, args)
    findings = []
    for finding in examine(config, run, args.code):
        findings.append(finding)
        print(json.dumps(finding.as_record()) if args.json else finding, flush=True)
    diagnosis = Diagnosis(findings)
    if args.json:
        verdict = "ok" if diagnosis.passed else "FAIL"
        summary = {"probe": "diagnosis", "verdict": verdict, "seen": str(diagnosis), "suspects": diagnosis.suspects}
        print(json.dumps(summary))
    else:
        print(f"\n{wrapped(str(diagnosis))}")
    return 0 if diagnosis.passed else 1


def names_a_run(name: str) -> bool:
    """Return whether this is a run's directory. A preset's name means the preset, even if a directory has it, too."""
    return Path(name).is_dir() and name not in configs.PRESETS and name not in configs.TABLE3
