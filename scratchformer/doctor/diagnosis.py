"""Why does the model not learn? Run all probes, and name the components to look at first.

The probes check the code, then the configuration, its text and this machine. Each says what it expects and what it saw.
A component at fault makes everything built on it fail as well, so the diagnosis names the lowest one (see `findings`).
"""

from __future__ import annotations

import textwrap
from itertools import chain
from typing import Any, Iterator

from scratchformer.config import Config
from scratchformer.doctor import backward_probes, data_probes, flow_probes, layer_probes, setup_probes, training_probes
from scratchformer.doctor.data_probes import EncodedText, Text, read_text
from scratchformer.doctor.findings import COMPONENTS, Finding, one_line, suspects
from scratchformer.doctor.fixtures import small_config
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.data import open_prepared, prepared_directory
from scratchformer.training.run import RunDirectory

WIDTH = 120


def examine(config: Config, run: RunDirectory | None = None, only_code: bool = False) -> Iterator[Finding]:
    """Run the probes and yield their results one at a time.

    run        a run with this configuration; its weights, log and tokenizer are checked as well
    only_code  leave out everything that depends on the model's size, the text and this machine

    Raises UserError, before the first probe, if a file that the configuration names cannot be read.
    """
    if only_code:
        return probe_code(config)
    tokenizer = existing_tokenizer(config, run)
    text = read_text(config.data) if config.data.names_text else None
    return chain(probe_code(config), catch_errors(probe_setup(config, run, text, tokenizer)))


def existing_tokenizer(config: Config, run: RunDirectory | None) -> Tokenizer | None:
    """The tokenizer of the run or of the prepared text; None if there is none yet. Raises UserError if it cannot be
    read."""
    if run:
        return Tokenizer.load(run.tokenizer_file)
    directory = prepared_directory(config.data)
    return open_prepared(directory, config)[0] if directory else None


def probe_code(config: Config) -> Iterator[Finding]:
    """Run the probes of layers, backward, flow and training, one after another as the caller asks for findings."""
    small = small_config(config.model)
    for probe in chain(
        layer_probes.probes(small),
        backward_probes.probes(small),
        flow_probes.probes(small),
        training_probes.probes(config),
    ):
        yield probe.run()


def catch_errors(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Turn an exception into a last Finding: if the code is broken, the probes of the setup may raise anything."""
    try:
        yield from findings
    except Exception as error:
        yield Finding(
            "remaining probes",
            "text, configuration, run and machine can be checked",
            f"stopped by {one_line(error)}",
            "FAIL",
            "a fault in the code, which a probe above may have found; too little memory; a bug in doctor itself",
        )


def probe_setup(
    config: Config, run: RunDirectory | None, text: Text | None, tokenizer: Tokenizer | None
) -> Iterator[Finding]:
    """Check the text, the configuration, the run and the machine."""
    vocab_size, training = config.model.vocab_size, config.training
    encoded: EncodedText | Finding | None = None
    steps = None
    if text is None and vocab_size <= data_probes.MAX_BUNDLED_VOCABULARY:
        text = read_text(config.data)
    if text is None:
        seen = f"none is given (--data), and the bundled corpus is too small for model.vocab_size = {vocab_size}"
        yield Finding("text", "pairs of sentences", seen, "skipped")
    else:
        yield from data_probes.probe_pairs(text)
        encoded = data_probes.encode(text, config, tokenizer)
        if isinstance(encoded, Finding):
            yield encoded
        else:
            steps = data_probes.measure_steps(encoded, config)
            yield from data_probes.probe_tokens(encoded, text, config)
            yield from data_probes.probe_batches(steps)

    n_steps = steps.total if steps else training.steps
    yield from setup_probes.probe_schedule(config, n_steps)
    first = None
    too_large = setup_probes.model_too_large(config.model)
    if too_large:
        yield too_large
    else:
        first = setup_probes.first_pass(config)
        yield from setup_probes.probe_new_model(first, config.model)
    if run:
        yield from setup_probes.probe_run(run, encoded.sample_batch() if isinstance(encoded, EncodedText) else None)
    yield from setup_probes.probe_machine(config, run)
    if first:
        positions = steps.target_positions if steps else training.tokens_per_batch * training.accumulation
        yield setup_probes.probe_duration(first.seconds_per_position, positions, n_steps, steps and steps.per_epoch)


class Diagnosis:
    """The conclusion from all findings: `passed`, `suspects` (most likely first), and a few sentences as its `str`."""

    def __init__(self, findings: list[Finding]) -> None:
        self.failed = [finding for finding in findings if finding.verdict == "FAIL"]
        self.noted = [finding for finding in findings if finding.verdict == "note"]
        self.passed = not self.failed
        self.faults = [fault for finding in findings for fault in finding.faults]
        self.suspects = suspects(self.faults)

    def __str__(self) -> str:
        sentences = []
        setup = [finding for finding in self.failed if not finding.faults]
        if self.suspects:
            first, *others = (f"{name} (scratchformer/{COMPONENTS[name].file})" for name in self.suspects)
            fault = next(fault for fault in self.faults if fault.component == self.suspects[0])
            sentences.append(f"Look first at {first}: {fault.problem}.")
            if others:
                sentences.append(f"Then at {' and '.join(others)}.")
            if {fault.component for fault in self.faults} - set(self.suspects):
                sentences.append("Other components failed too, probably as a consequence.")
            if setup:
                sentences.append(f"After that, check the setup: {', '.join(finding.probe for finding in setup)}.")
        elif setup:
            seen = "; ".join(f"{finding.probe} ({finding.seen})" for finding in setup)
            sentences.append(f"The code passed, the setup did not: {seen}.")
        else:
            sentences.append("No probe failed.")
        if self.noted:
            sentences.append(f"Worth a look: {', '.join(finding.probe for finding in self.noted)}.")
        return " ".join(sentences)


def as_text(finding: Finding) -> str:
    """For people: a line with verdict and name, then what was expected and seen."""
    rows = [("expected", finding.expected), ("seen", finding.seen)]
    if finding.verdict in ("FAIL", "note"):
        rows += [("usual causes" if finding.verdict == "FAIL" else "hint", finding.causes)]
        rows += [("suspects", ", ".join(finding.suspects))]
    return "\n".join([f"{finding.verdict:8}{finding.probe}", *(row(*pair) for pair in rows if pair[1])])


def row(label: str, text: str) -> str:
    """A label and a text beside it, in lines of at most WIDTH characters."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=f"{'':8}{label:15}",
        subsequent_indent=" " * 23,
        break_on_hyphens=False,
        break_long_words=False,
    )


def as_record(finding: Finding) -> dict[str, Any]:
    """For programs."""
    return {
        "probe": finding.probe,
        "verdict": finding.verdict,
        "expected": finding.expected,
        "seen": finding.seen,
        "causes": finding.causes,
        "suspects": finding.suspects,
    }
