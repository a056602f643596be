"""Why does the model not learn? Run all probes, and name the components to look at first.

The probes check the code, then the configuration, its text and this machine. Each says what it expects and what it saw.
A component at fault makes everything built on it fail as well, so the diagnosis names the lowest one (see `findings`).
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Iterator

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.doctor import data_probes, flow_probes, layer_probes, setup_probes, training_probes
from scratchformer.doctor.data_probes import Text, read_text
from scratchformer.doctor.findings import CodeProbe, Finding, components, one_line, suspects
from scratchformer.doctor.fixtures import small_config
from scratchformer.errors import UserError
from scratchformer.tasks.task import task_named, vocabulary_of
from scratchformer.tasks.translation import Corpus, open_prepared, prepared_directory
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.run import RunDirectory


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
    """The tokenizer of the run, of the prepared text or of the pretrained run; None if there is none yet."""
    if run:
        return run.read_tokenizer(run.require())
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
    """The table of checks of the code: layers, flow and training. The tests run it, too."""
    small = small_config(config.model)
    return [*layer_probes.probes(small), *flow_probes.probes(small), *training_probes.probes(config)]


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


def probe_setup(config: Config, run: RunDirectory | None, data: Any, tokenizer: Tokenizer | None) -> Iterator[Finding]:
    """Check the data, the configuration, the run and the machine. data: of `read_data`"""
    task, examples, n_steps, sampled, scale = task_named(config.data.task), None, config.training.steps, "", 1.0
    asked = config
    if isinstance(data, Text):
        yield from data_probes.probe_pairs(data)
        sampled, scale = data.sample, 1 / data.fraction
        data = Corpus(data.train, data.held_out.get("val"))
    if data is None:
        size = f"model.vocab_size = {config.model.vocab_size}"
        seen = f"none is given (--data, --text), and the bundled corpus is too small for {size}"
        yield Finding("text", "text to learn from", seen, "skipped")
    else:
        try:
            tokenizer = tokenizer or task.train_tokenizer(data, config)
            config = task.settled(config, tokenizer)
            encoded = task.encode(data, tokenizer, config)
            encoded.require_fit(config.training.tokens_per_batch)
        except UserError as error:
            expected = "vocabulary, lengths and batch size suit the data"
            seen = f"not checked: in {sampled}, {error}" if sampled else str(error)
            causes = "model.vocab_size, data.max_length or training.tokens_per_batch does not suit the data"
            yield Finding("examples", expected, seen, "skipped" if sampled else "FAIL", causes)
        else:
            examples = encoded.train
            yield from data_probes.probe_examples(encoded, task, config, sampled)
            n_steps, findings = data_probes.probe_batches(examples, config, scale)
            yield from findings
            if sampled:  # all of the text may give more pieces
                config = asked

    yield from setup_probes.probe_schedule(config, n_steps)
    yield from setup_probes.probe_new_model(config)
    if run:
        yield from setup_probes.probe_run(run, data_probes.sample_batch(examples) if examples else None)
    yield from setup_probes.probe_machine(config, run)


class Diagnosis:
    """The conclusion from all findings: `passed`, `suspects` (most likely first), and a few sentences as its `str`."""

    def __init__(self, findings: list[Finding]) -> None:
        self.failed = [finding for finding in findings if finding.verdict == "FAIL"]
        self.noted = [finding for finding in findings if finding.verdict == "note"]
        self.passed = not self.failed
        self.faults: dict[str, str] = {}  # the first of each component
        for finding in findings:
            self.faults = finding.faults | self.faults
        self.suspects = suspects(self.faults)

    def __str__(self) -> str:
        sentences = []
        setup = [finding for finding in self.failed if not finding.faults]
        if self.suspects:
            first, *others = (f"{name} (scratchformer/{components()[name].file})" for name in self.suspects)
            sentences.append(f"Look first at {first}: {self.faults[self.suspects[0]]}.")
            if others:
                sentences.append(f"Then at {' and '.join(others)}.")
            if self.faults.keys() - set(self.suspects):
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
