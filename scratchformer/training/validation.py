"""How good is the model so far? Its loss on the validation text, and the BLEU of its translations."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.decoding.translator import Translator
from scratchformer.nn.loss import batch_loss
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops, using
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.batches import Examples, batches_in_order
from scratchformer.text.bleu import corpus_scores
from scratchformer.training import checkpoints
from scratchformer.training.saving import checkpoint

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer


def validate(trainer: Trainer) -> dict[str, Any]:
    """The loss on the validation text -> the entry for the log. Saves the weights if they are the best so far."""
    loss, progress = loss_of_validation(trainer), trainer.progress
    improved = loss < progress.best_loss
    unimproved = 0 if improved else progress.unimproved + 1
    trainer.progress = replace(progress, best_loss=min(loss, progress.best_loss), unimproved=unimproved)
    if improved and trainer.is_main:
        checkpoints.save(trainer.run.checkpoints.best, replace(checkpoint(trainer), moments={}))
    return {"step": progress.step, "loss": loss, "perplexity": math.exp(min(loss, 700))} | reached(trainer)


def loss_of_validation(trainer: Trainer) -> float:
    """`validation_loss` of the trainer's model on its validation data."""
    assert trainer.data.val is not None
    tokens_per_batch = trainer.config.training.tokens_per_batch
    with threadpool_limits(trainer.blas_threads, "blas"):
        at_once = trainer.parallel.map, trainer.device.ops
        return validation_loss(trainer.model, trainer.data.val, tokens_per_batch, trainer.ranks, *at_once)


def validation_loss(
    model: Model,
    pairs: Examples,
    tokens_per_batch: int,
    ranks: Communicator = Communicator(),
    map: Callable = map,
    ops: tuple[Ops, ...] = (),
) -> float:
    """Mean negative log likelihood per target token, in nats, without label smoothing and dropout.

    exp of it is the perplexity of Table 3. The batches are divided among the ranks, and among the threads of `map`, and
    their losses are added in order: so the result has the same bits for any number of ranks and threads.

    map  like Python's map, but threads may share the calls; ops: the operations that they use
    """
    batches = list(batches_in_order(pairs, tokens_per_batch))
    losses, n_tokens = np.zeros(len(batches)), np.zeros(len(batches))
    share = range(ranks.rank, len(batches), ranks.size)

    def work(index: int) -> tuple[float, int]:
        with using(*ops):  # also in a thread of its own
            loss, n = batch_loss(model, batches[index].inputs, batches[index].targets)
            return float(loss), n

    for index, found in zip(share, map(work, share)):
        losses[index], n_tokens[index] = found
    ranks.all_reduce_inplace(losses)
    ranks.all_reduce_inplace(n_tokens)
    return sum(losses.tolist()) / sum(n_tokens.tolist())


def validation_bleu(trainer: Trainer) -> dict[str, Any]:
    """sacreBLEU of greedy translations of the validation text, of which each rank translates its share -> log entry"""
    assert trainer.data.val_text is not None
    assert trainer.tokenizer is not None
    source, target, ranks = trainer.data.val_text.source, trainer.data.val_text.target, trainer.ranks
    translator = Translator(
        trainer.model, trainer.tokenizer, trainer.config.decoding.extra_length, trainer.threads, trainer.device
    )
    share = translator.translate(source[ranks.rank :: ranks.size], beam=1)
    translations = [""] * len(source)
    for rank, message in enumerate(ranks.all_gather_bytes(json.dumps(share).encode())):
        translations[rank :: ranks.size] = json.loads(message)
    scores = corpus_scores(translations, target)
    entry = {"step": trainer.progress.step, "bleu": scores.bleu, "signature": scores.bleu_signature}
    return entry | reached(trainer)


def reached(trainer: Trainer) -> dict[str, Any]:
    """How far training is, for a log entry: target tokens and seconds of training so far."""
    return {"all_target_tokens": trainer.progress.target_tokens, "train_seconds": trainer.progress.seconds}
