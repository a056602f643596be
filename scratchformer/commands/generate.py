"""`scratchformer generate`: continue a text with a language model."""

from __future__ import annotations

import argparse
import time

from scratchformer.commands.options import (
    Commands,
    add_command,
    add_machine,
    add_option,
    add_run,
    sentence,
    setting,
    within,
)
from scratchformer.commands.terminal import tell
from scratchformer.commands.translate import machine_of


def add(commands: Commands) -> None:
    parser = add_command(commands, "generate", generate)
    add_run(parser)
    add_option(parser, "--prompt TEXT", sentence, "what to continue (default: begin a text)")
    add_option(parser, "--tokens N", within(1, 10**6), "how many tokens to write at most (default: 200)", 200)
    temperature = "below 1 likely tokens become likelier; 0 always takes the most likely one (default: 1)"
    add_option(parser, "--temperature T", within(0, 100, float), temperature, 1.0)
    add_option(parser, "--top-k K", within(0, 2**24), "choose among the K most likely tokens; 0: all (default: 0)", 0)
    top_p = "choose among the most likely tokens that have this probability together (default: 1)"
    add_option(parser, "--top-p P", within(1e-6, 1, float), top_p, 1.0)
    add_option(parser, "--seed N", setting("seed"), "the same seed draws the same tokens (default: 0)", 0)
    add_option(parser, "--samples N", within(1, 1000), "write so many texts at once (default: 1)", 1)
    add_machine(parser, "fp32")


def generate(args: argparse.Namespace) -> None:
    """Continue a text with a language model.

    scratchformer generate runs/gpt-tiny --prompt "Attention is" --temperature 0.8 --top-k 50
    scratchformer generate runs/gpt-tiny --tokens 500 --samples 3 --seed 7
    """
    from threadpoolctl import threadpool_limits

    from scratchformer.decoding.generation import Sampling, begin_text
    from scratchformer.decoding.generation import generate as write
    from scratchformer.decoding.translator import CONTROLS
    from scratchformer.nn.language_model import LanguageModel
    from scratchformer.nn.ops import using
    from scratchformer.text.tokenizer import PAD, Tokenizer
    from scratchformer.training.run import load_model

    device, threads = machine_of(args)
    model, tokenizer, config, *_ = load_model(args.path, args.checkpoint, device=device, tasks=("language-model",))
    assert isinstance(model, LanguageModel) and isinstance(tokenizer, Tokenizer)

    prompt = begin_text(tokenizer, args.prompt or "")
    texts: list[list[int]] = [[] for _ in range(args.samples)]
    harmful = {code: " " for code in CONTROLS if chr(code) not in "\n\t"}  # would move the cursor of a terminal

    def added(before: list[int], ids: list[int]) -> str:
        """The text that these ids add to that of the ids before them."""
        known, whole = tokenizer.decode([before, [*before, *ids]])
        return whole[len(known) :].translate(harmful)

    streams, began = args.samples == 1, time.perf_counter()
    shown = args.prompt or ""
    print(shown if streams else "", end="", flush=True)
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    steps = write(model, prompt, args.tokens, sampling, args.seed, args.samples, config.data.max_length)
    shown_ids: list[int] = prompt
    new_ids: list[int] = []  # not shown yet: they may end in the middle of a character
    with using(*device.frozen_ops()), threadpool_limits(threads, "blas"):
        for drawn in steps:
            for ids, token in zip(texts, drawn.tolist()):
                if token != PAD:
                    ids.append(token)
            if streams:
                new_ids.append(int(drawn[0]))
                text = added(shown_ids, new_ids)
                if not text.endswith("\N{REPLACEMENT CHARACTER}"):
                    print(text, end="", flush=True)
                    shown_ids, new_ids = new_ids, []
    if streams:
        print(added(shown_ids, new_ids))
    else:
        for number, ids in enumerate(texts, 1):
            print(f"--- {number} ---\n{shown}{added(prompt, ids)}")
    count, seconds = sum(map(len, texts)), time.perf_counter() - began
    tell(f"{count} tokens, {count / seconds:.0f} tokens a second with reading the prompt")
