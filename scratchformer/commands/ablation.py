"""Train the rows of Table 3 at a smaller scale."""

import argparse

from scratchformer import config as configs
from scratchformer.backends.cuda.device import open_device
from scratchformer.commands.configuration import changed, following_data
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError
from scratchformer.experiments import ablation, ablation_tables
from scratchformer.training.team import available_cores


def ablate(args: argparse.Namespace) -> int:
    require_positive(args, "seeds", "jobs")
    task, rows, cores = ablation.TASKS[args.on], ablation.chosen_rows(args.rows), available_cores()
    ablation.require_rows_own(task, rows, [configs.parse_setting(text)[0] for text in args.settings])
    jobs = args.jobs or (1 if (args.device or "cpu") != "cpu" else cores)
    args.directory = args.data or ablation.written_text(args.on, args.out)
    args.threads = max(1, cores // jobs)

    def trial(row: str, seed: int) -> ablation.Trial:
        config, _ = following_data(changed(task.config(row, seed), args), args)
        return ablation.Trial(row, seed, config, args.out)

    def tabulate() -> None:
        others = [trial(row, seed) for row, seed in ablation.on_disk(args.out) if row not in rows or seed >= args.seeds]
        for line in ablation_tables.write(args.on, [*asked, *(each for each in others if each.is_same())], args.out):
            tell(line)

    asked = [trial(row, seed) for seed in range(args.seeds) for row in rows]
    settings = asked[0].config.training
    open_device(settings.device, settings.precision)  # if there is none, say so once
    try:
        failures = ablation.carry_out(asked, jobs, tell)
    except KeyboardInterrupt:
        tabulate()
        tell("the same command goes on")
        raise
    tabulate()
    return 1 if failures else 0


def require_positive(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UserError(f"--{name} {getattr(args, name)} must be at least 1")
