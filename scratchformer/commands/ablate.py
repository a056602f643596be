"""`scratchformer ablate`: train the rows of Table 3 at a smaller scale."""

import argparse

from scratchformer import config as configs
from scratchformer.commands.configuration import adapt_to_data, with_options
from scratchformer.commands.options import (
    Commands,
    add_command,
    add_machine,
    add_option,
    add_settings,
    path,
    whole,
    word,
)
from scratchformer.commands.terminal import tell


def add(commands: Commands) -> None:
    parser = add_command(commands, "ablate", ablate)
    rows = "groups or rows of Table 3, for example A,C1,big (default: A,B,C,D,E); the base model is always included"
    add_option(parser, "--rows LIST", word, rows, "A,B,C,D,E")
    parser.add_argument("--on", choices=["tiny", "multi30k", "wmt14"], default="tiny", help="the text (default: tiny)")
    add_option(parser, "--seeds N", whole(1, 1000), "runs of each row (default: 3)", 3)
    add_option(parser, "--data DIR", word, "the text; tiny has its own")
    out = "directory of the runs and of the tables; the same command continues there after a stop"
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help=out)
    jobs = "runs at a time, each on its share of the cores (default: one for each core; one on a GPU)"
    add_option(parser, "--jobs N", whole(1, 1000), jobs)
    add_machine(parser, "tf32", threads=False)
    add_settings(parser)


def ablate(args: argparse.Namespace) -> int:
    """Train the rows of the paper's Table 3 at a smaller scale, and check its claims.

    scratchformer ablate --rows A,D1 --on tiny --seeds 3 --out runs/ablations
    scratchformer ablate --on multi30k --data DIR --out runs/ablations-m30k --device gpu
    """
    from scratchformer.backends.device import open_device
    from scratchformer.experiments import ablation, ablation_tables
    from scratchformer.parallel.cores import available_cores

    task, rows, cores = ablation.TASKS[args.on], ablation.chosen_rows(args.rows), available_cores()
    ablation.reject_row_settings(task, rows, [configs.parse_setting(text)[0] for text in args.settings])
    jobs = args.jobs or (1 if (args.device or "cpu") != "cpu" else cores)
    args.directory = args.data or ablation.text_directory(args.on, args.out)
    args.threads = max(1, cores // jobs)

    def trial(row: str, seed: int) -> ablation.Trial:
        config, _ = adapt_to_data(with_options(task.config(row, seed), args), args)
        return ablation.Trial(row, seed, config, args.out)

    def tabulate() -> None:
        existing = ablation.existing_trials(args.out)
        others = [trial(row, seed) for row, seed in existing if row not in rows or seed >= args.seeds]
        trials = [*requested, *(each for each in others if each.is_same())]
        for line in ablation_tables.write(args.on, trials, args.out):
            tell(line)

    requested = [trial(row, seed) for seed in range(args.seeds) for row in rows]
    settings = requested[0].config.training
    open_device(settings.device, settings.precision)  # refuses a missing GPU once, not in every run
    if args.data:
        requested[0].val()
    ablation.claim(args.out, requested)
    if not args.data:
        ablation.write_text(args.out)
    try:
        failures = ablation.run_trials(requested, jobs, tell)
    except KeyboardInterrupt:
        tabulate()
        tell("the same command continues")
        raise
    tabulate()
    return 1 if failures else 0
