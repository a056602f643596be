"""`scratchformer generate`: continue a text with a language model."""

from __future__ import annotations

import argparse
import sys

from scratchformer.commands.options import (
    Commands,
    add_command,
    add_machine,
    add_option,
    add_run,
    real,
    sentence,
    setting,
    whole,
)
from scratchformer.commands.translate import machine_of

CONTROLS = {code: " " for code in (*range(32), 127) if chr(code) not in "\n\t"}
"""Control characters, which a model may write, would move the cursor of a terminal."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "generate", generate)
    add_run(parser)
    add_option(parser, "--prompt TEXT", sentence, "what to continue (default: begin a text)")
    add_option(parser, "--tokens N", whole(1, 10**6), "how many tokens to write at most (default: 200)", 200)
    temperature = "below 1 likely tokens become likelier; 0 always takes the most likely one (default: 1)"
    add_option(parser, "--temperature T", real(0, 100), temperature, 1.0)
    add_option(parser, "--top-k K", whole(0, 2**24), "choose among the K most likely tokens; 0: all (default: 0)", 0)
    top_p = "choose among the most likely tokens that have this probability together (default: 1)"
    add_option(parser, "--top-p P", real(1e-6, 1), top_p, 1.0)
    add_option(parser, "--seed N", setting("seed"), "the same seed draws the same tokens (default: 0)", 0)
    add_option(parser, "--samples N", whole(1, 1000), "write so many texts at once (default: 1)", 1)
    add_machine(parser, "fp32")


def generate(args: argparse.Namespace) -> None:
    """Continue a text with a language model.

    scratchformer generate runs/gpt-tiny --prompt "Attention is" --temperature 0.8 --top-k 50
    scratchformer generate runs/gpt-tiny --tokens 500 --samples 3 --seed 7
    """
    from threadpoolctl import threadpool_limits

    from scratchformer.decoding.generation import Sampling
    from scratchformer.decoding.generation import generate as write
    from scratchformer.nn.language_model import LanguageModel
    from scratchformer.nn.ops import using
    from scratchformer.text.tokenizer import BOS, PAD, Tokenizer
    from scratchformer.training.run import RunDirectory, load_model, require_task

    require_task(RunDirectory(args.path), "language-model")
    device, threads = machine_of(args)
    model, tokenizer, config, *_ = load_model(args.path, args.checkpoint, device=device)
    assert isinstance(model, LanguageModel) and isinstance(tokenizer, Tokenizer)

    prompt = tokenizer.encode([args.prompt])[0] if args.prompt else [BOS]
    texts: list[list[int]] = [[] for _ in range(args.samples)]
    n_read = len(tokenizer.decode([prompt])[0])

    def written(ids: list[int]) -> str:
        """What the model has written, without the prompt."""
        return tokenizer.decode([[*prompt, *ids]])[0][n_read:].translate(CONTROLS)

    streams = args.samples == 1 and sys.stdout.isatty()
    shown = args.prompt or ""
    print(shown if streams else "", end="", flush=True)
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    steps = write(model, prompt, args.tokens, sampling, args.seed, args.samples, config.data.max_length)
    n_shown = 0
    with using(*device.ops), threadpool_limits(threads, "blas"):
        for drawn in steps:
            for ids, token in zip(texts, drawn.tolist()):
                if token != PAD:
                    ids.append(token)
            if streams and not (text := written(texts[0])).endswith("\N{REPLACEMENT CHARACTER}"):  # half a character
                print(text[n_shown:], end="", flush=True)
                n_shown = len(text)
    if streams:
        print(written(texts[0])[n_shown:])
        return
    for number, ids in enumerate(texts, 1):
        if args.samples > 1:
            print(f"--- {number} ---")
        print(shown + written(ids))
