"""The exercises of the lessons."""

import argparse

from scratchformer.study.exercises import workbook


def learn(args: argparse.Namespace) -> int:
    if args.action == "start":
        workbook.say("\n".join(workbook.start(args.exercises)))
    elif args.action == "list":
        for exercise, state in workbook.states(args.exercises):
            workbook.say(f"{exercise.id:34} {exercise.kind:9} {state:12} {exercise.title}")
    elif args.action == "check":
        return 0 if workbook.check_files(workbook.files(args.name, args.exercises)) else 1
    elif args.action == "hint":
        workbook.say(workbook.hint(workbook.one_named(args.name), args.number))
    elif args.action == "solution":
        workbook.say(workbook.solution(workbook.one_named(args.name)))
    else:
        workbook.say(workbook.reset(workbook.one_named(args.name), args.exercises))
    return 0
