"""Train a run, save a model as a run, continue a text: each in one call from Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Sequence

from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding import generation
from scratchformer.decoding.generation import Sampling
from scratchformer.nn.gradient_cases import check_own
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.model import Model
from scratchformer.nn.ops import using
from scratchformer.nn.registry import with_file
from scratchformer.tasks import start
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import loop
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.model_code import code_of
from scratchformer.training.run import RunDirectory, Trained, load_model


def train(
    config: Config | str,
    path: str | Path,
    callbacks: Sequence[Callable[[str, dict[str, Any]], None]] = (),
    check_gradients: bool = True,
) -> Trained:
    """Train a new run in the directory `path` -> its best model

    config     a configuration, or the name of a preset
    callbacks  called as callback(event, values) for each entry of the log: "step", "validation", "bleu", ...
    check_gradients  refuse layers of yours whose backward is wrong; False if theirs are meant to differ
    """
    config = configs.preset(config) if isinstance(config, str) else config
    config = replace(config, model=with_file(config.model))
    for remark in check_own(config.model) if check_gradients else ():
        print(remark, file=sys.stderr)
    run = RunDirectory(Path(path))
    run.callbacks = list(callbacks)
    trainer = start.begin(run, config)
    for remark in trainer.remarks:
        print(remark, file=sys.stderr)
    loop.train(trainer)
    run.unlock()
    return load_model(path)


def save_run(path: str | Path, model: Model, tokenizer: Tokenizer, config: Config) -> None:
    """Write a model to a new directory that every command takes as a run. `config` is of its task and its data."""
    weights = {name: parameter.data for name, parameter in model.parameters().items()}
    progress = Progress(tokenizer_checksum=tokenizer.checksum, code=code_of(model))
    RunDirectory(Path(path)).write_model(
        tokenizer, Checkpoint(weights, {}, progress, replace(config, model=model.config))
    )


def generate(
    trained: Trained, prompt: str = "", n_tokens: int = 100, sampling: Sampling = Sampling(), seed: int = 0
) -> str:
    """Continue the prompt with a language model -> the text with its prompt, at most `n_tokens` tokens longer"""
    model, tokenizer, config, _, device, threads = trained
    if not isinstance(model, LanguageModel):
        raise ValueError(f"a {type(model).__name__} continues no text: train a language model, such as gpt-tiny")
    ids = generation.begin_text(tokenizer, prompt)
    with using(*device.frozen_ops()), threadpool_limits(threads, "blas"):
        drawn = generation.generate(model, ids, n_tokens, sampling, seed, window=config.data.max_length)
        ids = ids + [int(new[0]) for new in drawn]
    return tokenizer.decode([ids])[0]
