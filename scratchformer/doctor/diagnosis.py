"""Why does the model not learn? Run all probes, and name the components to look at first.

The probes check the code, then the configuration, its text and this machine. Each says what it expects and what it saw.
A component at fault makes everything built on it fail as well, so the diagnosis names the lowest one (see `findings`).
"""

from __future__ import annotations

import textwrap
from itertools import chain
from typing import Any, Generator, Iterator, NamedTuple

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.doctor import backward_probes, data_probes, flow_probes, layer_probes, setup_probes, training_probes
from scratchformer.doctor.data_probes import Text, read_text
from scratchformer.doctor.findings import COMPONENTS, CodeProbe, Finding, one_line, suspects
from scratchformer.doctor.fixtures import small_config
from scratchformer.errors import UserError
from scratchformer.tasks.task import task_named, vocabulary_of
from scratchformer.tasks.translation import open_prepared, prepared_directory
from scratchformer.text.batches import Examples
from scratchformer.text.tokenizer import Tokenizer
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
    if tokenizer and config.training.pretrained:
        config = configs.with_settings(config, {"model.vocab_size": tokenizer.vocab_size})
    return chain(probe_code(config), catch_errors(probe_setup(config, run, read_data(config, tokenizer), tokenizer)))


def existing_tokenizer(config: Config, run: RunDirectory | None) -> Tokenizer | None:
    """The tokenizer of the run, of the prepared text or of the pretrained run; None if there is none yet.

    Raises UserError if it cannot be read.
    """
    if run:
        return run.read_tokenizer()
    directory, pretrained = prepared_directory(config.data), config.training.pretrained
    if directory and config.data.task == "translation":
        return open_prepared(directory, config)[0]
    return vocabulary_of(pretrained, config) if pretrained else None


def read_data(config: Config, tokenizer: Tokenizer | None) -> Any:
    """A `Text` for translation, what `Task.read` returns for other tasks.

    None if nothing is named, and the vocabulary still to be learned is too large for the bundled corpus.
    """
    too_small = config.model.reads_text and config.model.vocab_size > data_probes.MAX_BUNDLED_VOCABULARY
    if too_small and not tokenizer and not config.data.names_text:
        return None
    return read_text(config.data) if config.data.task == "translation" else task_named(config.data.task).read(config)


def code_probes(config: Config) -> list[CodeProbe]:
    """The table of checks of the code: layers, backward, flow and training. The tests run it, too."""
    small = small_config(config.model)
    return [
        *layer_probes.probes(small),
        *backward_probes.probes(small),
        *flow_probes.probes(small),
        *training_probes.probes(config),
    ]


def probe_code(config: Config) -> Iterator[Finding]:
    """Run the probes of the code one after another, as the caller asks for findings."""
    return (probe.run() for probe in code_probes(config))


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


class Examined(NamedTuple):
    """The findings of the probes of the data: the configuration with its sizes, and examples of the training data.

    examples  None if there are none that can be encoded
    scale     number of examples of the whole data for each of these
    """

    config: Config
    examples: Examples | None = None
    scale: float = 1.0


Probing = Generator[Finding, None, Examined]
"""Yields findings, and returns what further probes need."""


def probe_text(config: Config, text: Text, tokenizer: Tokenizer | None) -> Probing:
    """Check sentence pairs."""
    yield from data_probes.probe_pairs(text)
    encoded = data_probes.encode(text, config, tokenizer)
    if isinstance(encoded, Finding):
        yield encoded
        return Examined(config)
    yield from data_probes.probe_tokens(encoded, text, config)
    return Examined(config, encoded.pairs, encoded.scale)


def probe_task(config: Config, corpus: Any, tokenizer: Tokenizer | None) -> Probing:
    """Check the data of another task."""
    task = task_named(config.data.task)
    try:
        tokenizer = tokenizer or task.train_tokenizer(corpus, config)
        config = task.settled(config, tokenizer)
        data = task.encode(corpus, tokenizer, config)
    except UserError as error:
        expected, causes = (
            "vocabulary, lengths and batch size suit the data",
            "a vocabulary, a length or a batch that does not suit the data",
        )
        yield Finding("examples", expected, str(error), "FAIL", causes)
        return Examined(config)
    yield from data_probes.probe_examples(data, task, config)
    return Examined(config, data.train)


def probe_setup(config: Config, run: RunDirectory | None, data: Any, tokenizer: Tokenizer | None) -> Iterator[Finding]:
    """Check the data, the configuration, the run and the machine. data: of `read_data`"""
    examined, steps, training = Examined(config), None, config.training
    if data is None:
        size = f"model.vocab_size = {config.model.vocab_size}"
        seen = f"none is given (--data, --text), and the bundled corpus is too small for {size}"
        yield Finding("text", "text to learn from", seen, "skipped")
    else:
        probe = probe_text if config.data.task == "translation" else probe_task
        examined = yield from probe(config, data, tokenizer)
    config = examined.config
    if examined.examples:
        steps = data_probes.measure_steps(examined.examples, config, examined.scale)
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
        batch = data_probes.sample_batch(examined.examples) if examined.examples else None
        yield from setup_probes.probe_run(run, batch)
    yield from setup_probes.probe_machine(config, run, first)
    if first:
        positions = steps.positions if steps else training.tokens_per_batch * training.accumulation
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
    fields = "probe", "verdict", "expected", "seen", "causes", "suspects"
    return {field: getattr(finding, field) for field in fields}
