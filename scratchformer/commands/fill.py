"""`scratchformer fill`: what could stand in the place of [MASK]?"""

from __future__ import annotations

import argparse

from scratchformer.commands.options import Commands, add_command, add_machine, add_option, add_run, sentence, within
from scratchformer.commands.terminal import tell
from scratchformer.commands.translate import STANDARD_INPUT, InputLines, machine_of
from scratchformer.errors import UserError, printable


def add(commands: Commands) -> None:
    parser = add_command(commands, "fill", fill)
    add_run(parser)
    text = "text with one [MASK] or more, each for one piece of the vocabulary (default: the lines of standard input)"
    parser.add_argument("texts", nargs="*", type=sentence, metavar="TEXT", help=text)
    add_option(parser, "--top K", within(1, 1000), "how many fillings of each [MASK] to print (default: 5)", 5)
    add_machine(parser, "fp32")


def fill(args: argparse.Namespace) -> None:
    """Fill in the words that [MASK] hides, with a masked language model.

    scratchformer fill runs/bert-tiny "The [MASK] sleeps."
    scratchformer fill runs/bert-tiny --top 3 < sentences.txt
    """
    from threadpoolctl import threadpool_limits

    from scratchformer.decoding.filling import Filler
    from scratchformer.nn.text_encoder import TextEncoder
    from scratchformer.text.tokenizer import Tokenizer
    from scratchformer.training.run import load_model

    device, threads = machine_of(args)
    model, tokenizer, config, *_ = load_model(
        args.path, args.checkpoint, device=device, tasks=("masked-language-model",)
    )
    assert isinstance(model, TextEncoder) and isinstance(tokenizer, Tokenizer)
    filler = Filler(model, tokenizer, config.data.max_length, device)
    lines = InputLines([STANDARD_INPUT])
    if interactive := not args.texts and lines.are_typed():
        tell("Type a text with [MASK] and press Enter to fill it in; Ctrl-D ends.")
    with threadpool_limits(threads, "blas"):
        for index, text in enumerate(args.texts or lines):
            place = "the text" if len(args.texts) == 1 else f"text {index + 1}" if args.texts else lines.place(index)
            if not text.strip():
                print(flush=lines.are_sent())
                continue
            try:
                filled = filler.fill(text, args.top, place)
            except UserError as error:
                if not interactive:
                    raise
                tell(f"{error}")
                continue
            print(printable(filled.text))
            for number, candidates in enumerate(filled.candidates, 1):
                name = "[MASK]" if len(filled.candidates) == 1 else f"[MASK] {number}"
                shown = ", ".join(f"{each.text} {each.probability:.3f}" for each in candidates)
                print(printable(f"  {name}: {shown}"), flush=lines.are_sent())
    if remark := filler.unknown.remark():
        tell(remark)
