"""Is the code right, and why does a model not learn?"""

import argparse
import json
import os
import textwrap
from itertools import groupby
from pathlib import Path
from typing import Any

from scratchformer import config as configs
from scratchformer.commands.configuration import changed, following_data, named_config
from scratchformer.doctor.diagnosis import Diagnosis, as_record, as_text, examine
from scratchformer.errors import UserError
from scratchformer.nn import gradient_cases
from scratchformer.training.run import RunDirectory


def gradcheck(args: argparse.Namespace) -> int:
    reports = gradient_cases.run(args.layers or None)
    if not args.json:
        print(f"{'layer':26} {'parameter or input':50} {'worst relative error':>20}  verdict")
    passed = True
    for layer, cases in groupby(reports, key=lambda checked: checked[0].layer):
        worst: dict[str, Any] = {}
        for case, report in cases:
            passed &= report.passed
            for entry in report:
                if args.json:
                    print(
                        json.dumps(
                            {"layer": layer, "case": case.description, **entry._asdict(), "passed": entry.passed}
                        )
                    )
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
    run = RunDirectory(Path(args.preset)) if names_a_run(args.preset) else None
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
        print(
            json.dumps(
                {
                    "probe": "diagnosis",
                    "verdict": "ok" if diagnosis.passed else "FAIL",
                    "seen": str(diagnosis),
                    "suspects": diagnosis.suspects,
                }
            )
        )
    else:
        print(f"\n{textwrap.fill(str(diagnosis), 120, break_long_words=False, break_on_hyphens=False)}")
    return 0 if diagnosis.passed else 1


def names_a_run(name: str) -> bool:
    """Whether this is a run's directory, and not the name of a preset that a directory happens to bear as well."""
    return Path(name).is_dir() and name not in configs.PRESETS and name not in configs.TABLE3
