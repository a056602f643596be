"""Why does it not learn? Examines the code, a configuration, its text and this machine, from the ground up.

Each probe says what sensible work would show and what it saw. The diagnosis at the end names the lowest part at fault:
what is built on it fails as a consequence (`findings`).
"""

from __future__ import annotations

import textwrap
from itertools import chain
from typing import Any, Iterator

from scratchformer.config import Config
from scratchformer.doctor import backward_probes, data_probes, flow_probes, layer_probes, setup_probes, training_probes
from scratchformer.doctor.data_probes import Encoded, Text, read_text
from scratchformer.doctor.findings import ANATOMY, Finding, suspects
from scratchformer.doctor.specimens import small_model
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.data import open_prepared, prepared_directory
from scratchformer.training.run import RunDirectory

WIDTH = 120


def examine(config: Config, run: RunDirectory | None = None, only_code: bool = False) -> Iterator[Finding]:
    """The outcome of each probe, one at a time as the caller asks for them.

    run        a run with this configuration: its weights, its log and its tokenizer are examined, too
    only_code  leave out what depends on sizes, text and machine

    Raises UserError, before the first probe, if a file that the configuration names cannot be read.
    """
    tokenizer = given_tokenizer(config, run) if not only_code else None
    text = read_text(config.data) if config.data.names_text and not only_code else None
    return chain(of_code(config), [] if only_code else unless_broken(of_setup(config, run, text, tokenizer)))


def given_tokenizer(config: Config, run: RunDirectory | None) -> Tokenizer | None:
    """That of the run, or else of the prepared text; None if one is still to be learnt. Raises UserError if it cannot
    be read."""
    if run:
        return Tokenizer.load(run.tokenizer_file)
    directory = prepared_directory(config.data)
    return open_prepared(directory, config)[0] if directory else None


def of_code(config: Config) -> Iterator[Finding]:
    small = small_model(config.model)
    for probe in chain(
        layer_probes.probes(small),
        backward_probes.probes(small),
        flow_probes.probes(small),
        training_probes.probes(config),
    ):
        yield probe.carry_out()


def unless_broken(findings: Iterator[Finding]) -> Iterator[Finding]:
    """In code that is broken these probes may raise anything; the probes of the code have said why."""
    try:
        yield from findings
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        yield Finding(
            "the rest",
            "text, configuration, run and machine can be examined",
            f"breaks off with {reason}",
            "FAIL",
            "a fault in the code, named above if a probe has seen it; too little memory; a bug of " "doctor",
        )


def of_setup(
    config: Config, run: RunDirectory | None, text: Text | None, tokenizer: Tokenizer | None
) -> Iterator[Finding]:
    """The text, the configuration, the run, the machine."""
    encoded: Encoded | Finding | None = None
    steps = None
    if text is None and config.model.vocab_size <= data_probes.BUNDLED_VOCABULARY:
        text = read_text(config.data)  # it takes seconds to generate
    if text is None:
        yield Finding(
            "text",
            "pairs of sentences",
            "no text is named (--data), and the bundled corpus is too small "
            f"for model.vocab_size = {config.model.vocab_size}",
            "skipped",
        )
    else:
        yield from data_probes.of_pairs(text)
        encoded = data_probes.encode(text, config, tokenizer)
        if isinstance(encoded, Finding):
            yield encoded
        else:
            steps = data_probes.steps_of(encoded, config)
            yield from chain(data_probes.of_tokens(encoded, text, config), data_probes.of_batches(steps))

    n_steps = steps.in_training if steps else config.training.steps
    yield from setup_probes.schedule(config, n_steps)
    too_large = setup_probes.fits(config.model)
    if too_large:
        yield too_large
    else:
        look = setup_probes.first_look(config)
        yield from setup_probes.of_new_model(look, config.model)
    if run:
        yield from setup_probes.of_run(run, encoded.some_batch() if isinstance(encoded, Encoded) else None)
    yield from setup_probes.of_machine(config, run)
    if not too_large:
        budget = config.training.tokens_per_batch * config.training.accumulation
        yield setup_probes.duration(
            look, steps.target_positions if steps else budget, n_steps, steps and steps.in_epoch
        )


class Diagnosis:
    """What the findings come to: `passed`, `suspects` (most likely first), and a few sentences."""

    def __init__(self, findings: list[Finding]) -> None:
        self.failed = [finding for finding in findings if finding.verdict == "FAIL"]
        self.noted = [finding for finding in findings if finding.verdict == "note"]
        self.passed = not self.failed
        self.faults = [fault for finding in findings for fault in finding.faults]
        self.suspects = suspects(self.faults)

    def __str__(self) -> str:
        sentences = []
        if self.suspects:
            first, *others = (f"{name} (scratchformer/{ANATOMY[name].file})" for name in self.suspects)
            fault = next(fault for fault in self.faults if fault.place == self.suspects[0])
            sentences.append(f"Look first at {first}: {fault.what}.")
            if others:
                sentences.append(f"Then at {' and '.join(others)}.")
            if {fault.place for fault in self.faults} - set(self.suspects):
                sentences.append("What else failed is built on parts that are at fault.")
        setup = [finding for finding in self.failed if not finding.faults]
        if setup and self.suspects:
            sentences.append(f"Then look again at: {', '.join(finding.probe for finding in setup)}.")
        elif setup:
            seen = "; ".join(f"{finding.probe} ({finding.seen})" for finding in setup)
            sentences.append(f"The code is sound, but not the setup: {seen}.")
        if self.passed:
            sentences.append("No probe failed.")
        if self.noted:
            sentences.append(f"Worth a thought: {', '.join(finding.probe for finding in self.noted)}.")
        return " ".join(sentences)


def as_text(finding: Finding) -> str:
    """The finding for people: a line of verdict and name, then what was expected and seen."""
    rows = [("expected", finding.expected), ("seen", finding.seen)]
    if finding.verdict in ("FAIL", "note"):
        rows += [("usual causes" if finding.verdict == "FAIL" else "to know", finding.causes)]
        rows += [("suspects", ", ".join(finding.suspects))]
    return "\n".join([f"{finding.verdict:8}{finding.probe}", *(row(*pair) for pair in rows if pair[1])])


def row(label: str, text: str) -> str:
    indent = " " * 23
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=f"{'':8}{label:15}",
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def as_record(finding: Finding) -> dict[str, Any]:
    """The finding for programs."""
    return {
        "probe": finding.probe,
        "verdict": finding.verdict,
        "expected": finding.expected,
        "seen": finding.seen,
        "causes": finding.causes,
        "suspects": finding.suspects,
    }
