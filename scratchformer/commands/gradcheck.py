"""`scratchformer gradcheck`: compare every hand-written gradient with finite differences."""

import argparse
from itertools import groupby
from typing import Any

from scratchformer.commands.options import Commands, add_command, word


def add(commands: Commands) -> None:
    parser = add_command(commands, "gradcheck", gradcheck)
    parser.add_argument("layers", type=word, nargs="*", metavar="LAYER", help="class names (default: all)")
    parser.add_argument("--model", metavar="FILE", dest="defined_in", help="check the layers that this file registers")


def gradcheck(args: argparse.Namespace) -> int:
    """Compare every hand-written gradient with finite differences.

    scratchformer gradcheck SelfAttention LayerNorm
    scratchformer gradcheck --model my.py
    """
    from scratchformer.nn import gradient_cases

    reports = gradient_cases.run(args.layers or None, args.defined_in)
    print(f"{'layer':26} {'parameter or input':50} {'worst relative error':>20}  verdict")
    passed = True
    for layer, cases in groupby(reports, key=lambda checked: checked[0].layer):
        worst: dict[str, Any] = {}
        reasons = dict[str, None]()
        for _, report in cases:
            passed &= report.passed
            reasons |= dict.fromkeys(filter(None, [report.reason]))
            for entry in report:
                if entry.name not in worst or not entry.error <= worst[entry.name].error:  # also if it is NaN
                    worst[entry.name] = entry
        for entry in worst.values():
            verdict = "ok" if entry.passed else "WRONG"
            print(f"{layer:26} {entry.name:50} {entry.error:20.1e}  {verdict}", flush=True)
        for reason in reasons:
            print(f"{layer}: {reason}")
    print("every gradient agrees with finite differences" if passed else "some gradients are WRONG")
    return 0 if passed else 1
