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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cpu_step import QUICK, blas_threads, micro_batches, our_step
from harness import EAGER, OURS, number, record, rounded, take_turns
from matplotlib.figure import Figure
from small_training import read_text

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import figures
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import BatchPlan, EncodedPairs, steps
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import find_split, read_pairs
from scratchformer.training.checkpoints import copy_into
from scratchformer.training.torch_format import from_torch
from scratchformer.training.validation import validation_loss

if TYPE_CHECKING:  # else PyTorch is imported once it is known to be there
    from rival import Rival

SMALL = QUICK | {"vocab_size": 120, "tokens_per_batch": 256, "warmup": 20, "extra_length": 4}
PAUSE = 0.02  # seconds before a turn
QUIET = 10  # per cent of the steps that count as undisturbed
COLUMNS = ("step", "target_tokens", "seconds_ours", "seconds_theirs", "val_loss_ours", "val_loss_theirs")
"""Of the curve: seconds of all steps until then, losses in nats per target token, unsmoothed."""


def first_steps(train: EncodedPairs, config: Config, target_tokens: int) -> list[EncodedPairs]:
    """The steps that `scratchformer train` begins with, until they hold so many target tokens."""
    settings, chosen, n_tokens = config.training, [], 0
    plan = BatchPlan(train, settings.tokens_per_batch, settings.accumulation, settings.seed, settings.bucket_fineness)
    for _, _, indices in steps(plan):
        keep = np.zeros(len(train), bool)
        keep[indices] = True
        sides = train.source.select(keep), train.target.select(keep)
        chosen.append(EncodedPairs(*sides, train.line_numbers[keep], train.max_length, 0))
        n_tokens += len(chosen[-1].target.ids)
        if n_tokens >= target_tokens:
            return chosen


def run(
    config: Config, all_steps: list[EncodedPairs], val: EncodedPairs, threads: int, validate_every: int
) -> tuple[dict[str, Any], dict[str, Transformer]]:
    """Train both -> the results, and both models. PyTorch's batches are padded beforehand, ours within the step."""
    import torch
    from rival import Rival, assert_same, copy_weights, their_step, to_tensors

    training, tensors = config.training, [[to_tensors(micro_batches(pairs, 1)[0])] for pairs in all_steps]
    torch.set_num_threads(threads)
    torch.manual_seed(training.seed)
    model = Transformer(config.model, training.seed)
    rival = Rival(config.model, max(int(pairs.lengths.max()) for pairs in all_steps))
    copy_weights(model, rival)
    assert_same(model, rival, micro_batches(all_steps[0], 1)[0], training)
    ours, theirs = our_step(model, config, training.accumulation, threads), their_step(rival, config)
    sides = {OURS: lambda step: ours(all_steps[step]), EAGER: lambda step: theirs(tensors[step])}
    pinned = {OURS: blas_threads(), EAGER: torch.get_num_threads()}
    seconds, n_tokens, curve = np.zeros((0, 2)), np.array([len(pairs.target.ids) for pairs in all_steps]), []

    def look(step: int) -> None:
        losses = [validation_loss(each, val, training.tokens_per_batch) for each in (model, ours_of(rival, config))]
        curve.append(rounded([step, int(n_tokens[:step].sum()), *seconds.sum(axis=0).tolist(), *losses]))
        print(dict(zip(COLUMNS, curve[-1])), flush=True)

    look(0)
    for start in range(0, len(all_steps), validate_every):
        units = range(start, min(start + validate_every, len(all_steps)))
        turns = take_turns(sides, units, 1, warm_up=0, pause=PAUSE, seed=start)
        seconds = np.concatenate([seconds, np.stack([turns.seconds[side][0] for side in sides], axis=1)])
        look(units[-1] + 1)
    # In a step, PyTorch computes all pairs as one batch, and we cut them into smaller ones with less padding.
    cuts = training.accumulation, 1
    n_positions = [[sum(b.n_positions for b in micro_batches(pairs, cut)) for cut in cuts] for pairs in all_steps]
    found = {
        "threads_pinned": pinned,
        "curve_columns": COLUMNS,
        "curve": curve,
        **times(seconds, np.array(n_positions)),
    }
    return found, {OURS: model, EAGER: ours_of(rival, config)}


def ours_of(rival: Rival, config: Config) -> Transformer:
    """A model of ours with the rival's weights: so both are validated, and translate, by the same code."""
    tensors = {name: tensor.numpy() for name, tensor in rival.state_dict().items()}
    tensors["source_embedding.weight"] = tensors.pop("embedding.weight")
    model, origin = Transformer(config.model), Path("PyTorch's weights")
    copy_into(from_torch(tensors, config.model, origin), model.store.named_views(model.store.data), origin)
    return model


def times(seconds: np.ndarray, positions: np.ndarray) -> dict[str, Any]:
    """Seconds and padded positions of the steps, both (steps, sides) -> totals of the sides, and their ratios.

    sum         of all steps, with all other work of the machine
    quiet       if all steps had been as quick per padded position as each side's quickest tenth
    median_step of the steps' own ratios, which a disturbance of some steps hardly moves; with quartiles
    """
    quiet = np.percentile(seconds / positions, QUIET, axis=0) * positions.sum(axis=0)
    totals = {"sum": seconds.sum(axis=0), "quiet": quiet}
    lower, median, upper = np.percentile(seconds[:, 1] / seconds[:, 0], [25, 50, 75]).tolist()
    ratios = {name: number(theirs / ours) for name, (ours, theirs) in totals.items()}
    return {
        "seconds": {name: dict(zip((OURS, EAGER), rounded(values))) for name, values in totals.items()},
        "time_over_ours": ratios | rounded({"median_step": median, "quartiles_of_steps": [lower, upper]}),
    }


@figures.as_default_style
def curves_figure(curve: list[list[float]], threads: int) -> Figure:
    """Validation loss of both sides. Left: over target tokens, where they should agree. Right: over seconds."""
    _, tokens, *seconds_and_losses = np.array(curve, float).T
    seconds, losses = seconds_and_losses[:2], seconds_and_losses[2:]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    over_tokens, over_seconds = figure.subplots(1, 2, sharey=True)
    ours = {"label": OURS, "color": figures.DARK, "marker": "o", "markersize": 4, "zorder": 3}
    theirs = {"label": "PyTorch", "color": figures.ACCENT, "linewidth": 5, "alpha": 0.5}
    for x, y, style in zip(seconds, losses, (ours, theirs)):
        over_tokens.plot(tokens / 1e6, y, **style)
        over_seconds.plot(x, y, **style)
    words = {"x": "target tokens seen, in millions", "y": "validation loss, nats per target token"}
    figures.label(over_tokens, "The same steps", **words)
    figures.label(over_seconds, "The same steps, by the clock", x=f"seconds of training steps, {threads} thread(s)")
    over_tokens.legend()
    return figure


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="directory of train.en, train.de, val.en ...")
    parser.add_argument("--test", default="val", help="translated in the end (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="for both sides (default: %(default)s)")
    parser.add_argument("--target-tokens", type=int, default=1_500_000, help="to train on (default: %(default)s)")
    parser.add_argument("--validate-every", type=int, default=50, help="steps (default: %(default)s)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    quick = arguments.quick
    target_tokens, validate_every = (3000, 2) if quick else (arguments.target_tokens, arguments.validate_every)
    config = configs.with_settings(configs.preset("multi30k"), {"data.directory": str(arguments.data)})
    config = configs.with_settings(config, SMALL if quick else {})
    test = read_pairs(*find_split(arguments.data, arguments.test, "en", "de"))
    tokenizer, text = read_text(config)
    all_steps = first_steps(text.train, config, target_tokens)
    found, models = run(config, all_steps, text.val, arguments.threads, validate_every)
    bleu: dict[str, Any] = {"alpha": config.decoding.alpha, "n_sentences": len(test.source)}
    for beam in (1, 4):
        for name, model in models.items():
            translator = Translator(model, tokenizer, config.decoding.extra_length)
            score = corpus_scores(translator.translate(test.source, beam, config.decoding.alpha), test.target)
            bleu.setdefault(f"beam {beam}", {})[name] = number(score.bleu)
            bleu["signature"] = score.bleu_signature
    print(found["time_over_ours"], bleu)
    figures.save(curves_figure(found["curve"], arguments.threads), arguments.out / "cpu_run.png")
    data = arguments.data.resolve().name  # a path would say where, not what
    return {
        "test": arguments.test,
        "threads": arguments.threads,
        "steps": len(all_steps),
        "target_tokens": sum(len(pairs.target.ids) for pairs in all_steps),
        **found,
        "bleu": bleu,
        "config": configs.to_dict(configs.with_settings(config, {"data.directory": data})),
    }


if __name__ == "__main__":
    record("cpu_run", __doc__, measure, options, threads=None, torch=True)
