"""Does a training run end where PyTorch's does, and how much sooner?

    python benchmarks/cpu_run.py --data DIR [--test SPLIT] [--threads 2] [--target-tokens 1500000]
                                 [--validate-every 50] [--out DIR] [--quick]

Scratchformer and PyTorch train the preset `multi30k` from the same weights on the same sentence pairs, step by step in
the same order and with the same learning rates; only their dropout masks differ. Both live in one process and take
turns at every step, so that a disturbance hits one as likely as the other. Recorded are both curves of validation loss,
over target tokens and over seconds, and the BLEU of both models in the end. README.md here says more.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
from cpu_step import EAGER, OURS, QUICK, RESULTS, blas_threads, micro_batches, our_step, positive
from matplotlib.figure import Figure
from provenance import surroundings
from small_training import number, write

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.experiments import figures
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.batches import BatchPlan, EncodedPairs, steps
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs, find_split, read_pairs
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.checkpoints import copy_into
from scratchformer.training.torch_format import from_torch
from scratchformer.training.validation import validation_loss

if TYPE_CHECKING:  # else PyTorch is imported once it is known to be there
    from rival import Rival

SIDES = (OURS, EAGER)
QUICK_SETTINGS = QUICK | {"vocab_size": 120, "tokens_per_batch": 256, "warmup": 20, "extra_length": 4}
QUICK_TOKENS, QUICK_VALIDATE_EVERY = 3000, 2

PAUSE = 0.02  # seconds before a turn: idle threads of the last one spin for a while
SEED_OF_TURNS = 0
BEAMS = (1, 4)  # 1 is greedy search
QUIET = 10  # per cent of the steps that count as undisturbed

# What both learn ------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """steps: the pairs of one step each;  val: what the validation loss is of;  test: what is translated in the end"""

    config: Config
    tokenizer: Tokenizer
    steps: list[EncodedPairs]
    val: EncodedPairs
    test: Pairs

    @property
    def target_tokens(self) -> np.ndarray:
        """Real target tokens of each step."""
        return np.array([len(pairs.target.ids) for pairs in self.steps])


def read_task(data: Path, test: str, target_tokens: int, quick: bool) -> Task:
    """The first steps of a training run, until they hold so many target tokens.

    Raises UserError for whatever is wrong with the text.
    """
    config = configs.with_settings(configs.preset("multi30k"), {"data.directory": str(data)})
    if quick:
        config = configs.with_settings(config, QUICK_SETTINGS)
    languages = config.data.source_language, config.data.target_language
    test_text = read_pairs(*find_split(data, test, *languages))
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)
    text = encode_corpus(corpus, tokenizer, config)
    return Task(config, tokenizer, first_steps(text.train, config, target_tokens), text.val, test_text)


def first_steps(train: EncodedPairs, config: Config, target_tokens: int) -> list[EncodedPairs]:
    """The steps that `scratchformer train` begins with."""
    settings, chosen, n_tokens = config.training, [], 0
    plan = BatchPlan(train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness)
    for _, _, indices in steps(plan):
        chosen.append(only(train, indices))
        n_tokens += len(chosen[-1].target.ids)
        if n_tokens >= target_tokens:
            return chosen


def only(pairs: EncodedPairs, indices: np.ndarray) -> EncodedPairs:
    """Some of the pairs, in the order of the corpus."""
    keep = np.zeros(len(pairs), bool)
    keep[indices] = True
    return EncodedPairs(
        pairs.source.select(keep), pairs.target.select(keep), pairs.line_numbers[keep], pairs.max_length, 0
    )


# The run --------------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A point of the two curves: seconds of all steps until then, losses in nats per target token, unsmoothed."""

    step: int
    target_tokens: int
    seconds_ours: float | None
    seconds_theirs: float | None
    val_loss_ours: float | None
    val_loss_theirs: float | None


def run(task: Task, threads: int, validate_every: int) -> dict[str, Any]:
    """Train both -> the results. PyTorch's batches are padded beforehand, ours within the step."""
    import torch
    from rival import Rival, assert_same, copy_weights, their_step, to_tensors

    config, training = task.config, task.config.training
    torch.set_num_threads(threads)
    torch.manual_seed(training.seed)
    whole = [micro_batches(pairs, 1) for pairs in task.steps]
    tensors = [[to_tensors(batch) for batch in batches] for batches in whole]
    model = Transformer(config.model, training.seed)
    rival = Rival(config.model, max(int(pairs.lengths.max()) for pairs in task.steps))
    copy_weights(model, rival)
    assert_same(model, rival, whole[0][0], training)
    ours, theirs = our_step(model, config, training.accumulation, threads), their_step(rival, config)
    pinned = {OURS: blas_threads(), EAGER: torch.get_num_threads()}

    def losses() -> list[float]:
        return [validation_loss(each, task.val, training.tokens_per_batch) for each in (model, ours_of(rival, config))]

    seconds, curve = train_in_turns(
        {OURS: lambda step: ours(task.steps[step]), EAGER: lambda step: theirs(tensors[step])},
        task.target_tokens,
        losses,
        validate_every,
    )
    # In a step, PyTorch computes all pairs as one batch, and we cut them into smaller ones with less padding.
    positions = np.array(
        [
            [sum(batch.n_positions for batch in micro_batches(pairs, cut)) for cut in (training.accumulation, 1)]
            for pairs in task.steps
        ]
    )
    return {
        "threads_pinned": pinned,
        "curve_columns": Point._fields,
        "curve": curve,
        **times(seconds, positions),
        "bleu": scores(task, dict(zip(SIDES, (model, ours_of(rival, config))))),
    }


def train_in_turns(
    sides: dict[str, Callable[[int], float]],
    target_tokens: np.ndarray,
    losses: Callable[[], list[float]],
    validate_every: int,
) -> tuple[np.ndarray, list[Point]]:
    """Take all steps on both sides -> seconds of each, (steps, sides), and the curve from step 0 on.

    Who goes first is drawn anew at every step. A side is called with the number of the step, from 0.
    """
    order, names = np.random.default_rng(SEED_OF_TURNS), list(sides)
    n_steps = len(target_tokens)
    seconds = np.zeros((n_steps, len(names)))

    def look(step: int) -> Point:
        point = Point(
            step,
            int(target_tokens[:step].sum()),
            *(number(value) for value in [*seconds[:step].sum(axis=0), *losses()]),
        )
        print(
            f"step {step:5} of {n_steps}, {point.target_tokens:9,} target tokens: validation loss "
            f"{point.val_loss_ours} here after {point.seconds_ours} s, {point.val_loss_theirs} in PyTorch after "
            f"{point.seconds_theirs} s",
            flush=True,
        )
        return point

    curve = [look(0)]
    for step in range(n_steps):
        for side in order.permutation(len(names)):
            time.sleep(PAUSE)
            began = time.perf_counter()
            sides[names[side]](step)
            seconds[step, side] = time.perf_counter() - began
        if (step + 1) % validate_every == 0 or step + 1 == n_steps:
            curve.append(look(step + 1))
    return seconds, curve


def ours_of(rival: Rival, config: Config) -> Transformer:
    """A model of ours with the rival's weights: so both are validated, and translate, by the same code."""
    tensors = {name: tensor.numpy() for name, tensor in rival.state_dict().items()}
    tensors["source_embedding.weight"] = tensors.pop("embedding.weight")
    model, origin = Transformer(config.model), Path("PyTorch's weights")
    copy_into(from_torch(tensors, config.model, origin), model.store.named_views(model.store.data), origin)
    return model


# What came of it ------------------------------------------------------------------------------------------------------


def times(seconds: np.ndarray, positions: np.ndarray) -> dict[str, Any]:
    """Seconds and padded positions of the steps, both (steps, sides) -> totals of the sides, and their ratios.

    sum         of all steps, with whatever else the machine did meanwhile
    quiet       what the steps would have taken, had all been as quick per padded position as each side's quickest tenth
    median_step of the steps' own ratios, which a disturbance of some steps hardly moves; with quartiles
    """
    quiet = np.percentile(seconds / positions, QUIET, axis=0) * positions.sum(axis=0)
    totals = {"sum": seconds.sum(axis=0), "quiet": quiet}
    lower, median, upper = np.percentile(seconds[:, 1] / seconds[:, 0], [25, 50, 75])
    return {
        "seconds": {
            name: {side: number(value) for side, value in zip(SIDES, values)} for name, values in totals.items()
        },
        "time_over_ours": {name: number(theirs / ours) for name, (ours, theirs) in totals.items()}
        | {"median_step": number(median), "quartiles_of_steps": [number(lower), number(upper)]},
    }


def scores(task: Task, models: dict[str, Transformer]) -> dict[str, Any]:
    """BLEU of both models' translations, found by the same search."""
    decoding, found, signature = task.config.decoding, {}, ""
    for beam in BEAMS:
        found[f"beam {beam}"] = {}
        for name, model in models.items():
            translator = Translator(model, task.tokenizer, decoding.extra_length)
            translations = translator.translate(task.test.source, beam, decoding.alpha)
            score = corpus_scores(translations, task.test.target)
            found[f"beam {beam}"][name] = number(score.bleu)
            signature = score.bleu_signature
    return {**found, "alpha": decoding.alpha, "n_sentences": len(task.test.source), "signature": signature}


@figures.as_default_style
def curves_figure(curve: list[Point], threads: int) -> Figure:
    """Validation loss of both sides. Left: over target tokens, where they should agree. Right: over seconds."""
    _, tokens, *seconds_and_losses = np.array(curve, float).T
    seconds, losses = seconds_and_losses[:2], seconds_and_losses[2:]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    over_tokens, over_seconds = figure.subplots(1, 2, sharey=True)
    styles = (
        {"label": "scratchformer", "color": figures.DARK, "marker": "o", "markersize": 4, "zorder": 3},
        {"label": "PyTorch", "color": figures.ACCENT, "linewidth": 5, "alpha": 0.5},
    )
    for x, y, style in zip(seconds, losses, styles):
        over_tokens.plot(tokens / 1e6, y, **style)
        over_seconds.plot(x, y, **style)
    figures.label(
        over_tokens, "The same steps", x="target tokens seen, in millions", y="validation loss, nats per target token"
    )
    figures.label(
        over_seconds,
        "The same steps, by the clock",
        x=f"seconds of training steps, {threads} thread{'s' if threads > 1 else ''}",
    )
    over_tokens.legend()
    return figure


def print_summary(result: dict[str, Any]) -> None:
    for name, seconds in result["seconds"].items():
        print(
            f"{name:5} seconds: {seconds[OURS]} here, {seconds[EAGER]} in PyTorch, which is "
            f"{result['time_over_ours'][name]} times ours"
        )
    print(
        f"median of the steps' ratios {result['time_over_ours']['median_step']}, quartiles "
        f"{result['time_over_ours']['quartiles_of_steps']}"
    )
    for beam in BEAMS:
        bleu = result["bleu"][f"beam {beam}"]
        print(f"BLEU on {result['test']}, beam {beam}: {bleu[OURS]} here, {bleu[EAGER]} in PyTorch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory of train.en, train.de, val.en ...")
    parser.add_argument(
        "--test",
        default="val",
        help="what is translated in the end, such as test_2016_flickr " "(default: %(default)s)",
    )
    parser.add_argument("--threads", type=positive, default=2, help="for both sides (default: %(default)s)")
    parser.add_argument("--target-tokens", type=positive, default=1_500_000, help="to train on (default: %(default)s)")
    parser.add_argument("--validate-every", type=positive, default=50, help="steps (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the results (default: results/ here)")
    parser.add_argument("--quick", action="store_true", help="a few steps of a small model, to see that it runs")
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"--out: {arguments.out} is not a directory")
    if importlib.util.find_spec("torch") is None:
        parser.error("there is no PyTorch to compare with: pip install torch")
    if arguments.quick:
        arguments.target_tokens = min(QUICK_TOKENS, arguments.target_tokens)
        arguments.validate_every = min(QUICK_VALIDATE_EVERY, arguments.validate_every)
    try:
        task = read_task(arguments.data, arguments.test, arguments.target_tokens, arguments.quick)
    except UserError as error:
        parser.error(str(error))

    around = surroundings()  # now: git may move while we measure
    around["versions"]["torch"] = importlib.metadata.version("torch")
    data, seed = arguments.data.resolve().name, task.config.training.seed  # a path would say where, not what
    result = {
        "command": f"python benchmarks/cpu_run.py --data {data} --test {arguments.test} --threads {arguments.threads} "
        f"--target-tokens {arguments.target_tokens} --validate-every {arguments.validate_every}"
        + (" --quick" if arguments.quick else ""),
        "benchmark": "cpu_run",
        "data": data,
        "test": arguments.test,
        "threads": arguments.threads,
        "steps": len(task.steps),
        "target_tokens": int(task.target_tokens.sum()),
        "seeds": {"weights": seed, "batches": seed, "dropout": seed, "turns": SEED_OF_TURNS},
        **run(task, arguments.threads, arguments.validate_every),
        **around,
        "config": configs.to_dict(configs.with_settings(task.config, {"data.directory": data})),
    }
    write(arguments.out, "cpu_run", result)
    figures.save(curves_figure(result["curve"], arguments.threads), arguments.out / "cpu_run.png")
    print_summary(result)


if __name__ == "__main__":
    main()
