"""What was a run, what has it reached, and what did it cost, beside what the paper says? A page of Markdown.

Everything in it is read from the run's directory (`config.toml`, log, evaluations, names of checkpoints) and its text.
What is not there is said to be unknown. The same run gives the same bytes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple, Sequence

from scratchformer import config as configs
from scratchformer.config import PRESETS, TABLE3, Config
from scratchformer.errors import UserError
from scratchformer.experiments import figures
from scratchformer.experiments.flops import BACKWARD, FORWARD, attention_products, weights_per_token
from scratchformer.experiments.markdown import table
from scratchformer.experiments.paper import (
    GPUS,
    P100_TFLOPS,
    PAPER_TABLE2,
    PAPER_TABLE3,
    PAPER_TRAINING,
    TOKENS_PER_STEP,
    capacity_flops,
    paper_matrix_flops,
    paper_model,
)
from scratchformer.experiments.sizes import format_duration, parameter_counts
from scratchformer.files import make_directory, replace_text
from scratchformer.preparation.prepared import Manifest, SplitCounts, read_manifest
from scratchformer.training.data import prepared_directory, read_corpus
from scratchformer.training.run import RunDirectory

Entry = dict[str, Any]
UNKNOWN = "unknown"


def write_report(run: RunDirectory, out: Path | None = None, tflops: float | None = None) -> Path:
    """Write `report.md` and its figures into a directory (None: RUN/report) -> the page

    tflops  what all devices that trained can sustain together; then the run's share of it is told

    Raises UserError if there is no run, or its log is damaged, or nothing can be written.
    """
    if tflops is not None and not 0 < tflops < math.inf:
        raise UserError(f"--tflops {tflops:g} must be above 0, and finite")
    run.require()
    config, log = configs.load(run.config_file), read_log(run)
    directory = out or run.path / "report"
    make_directory(directory)
    manifest = manifest_of(config)
    sections = [
        of_run(run, config, log),
        of_deviations(config),
        of_data(config, manifest),
        of_course(config, log),
        of_perplexity(config, manifest, log),
        of_scores(run, config, manifest),
        of_cost(config, manifest, log, tflops),
        drawn(config, log, directory),
    ]
    page = directory / "report.md"
    replace_text(page, "\n\n".join("\n".join(section) for section in sections if section) + "\n")
    return page


# What the directory holds ---------------------------------------------------------------------------------------------


class Log(NamedTuple):
    """The log's entries by kind, oldest first; empty where there are none. `exists`: an imported run has no log."""

    exists: bool
    steps: list[Entry]
    validations: list[Entry]
    bleus: list[Entry]


OF_A_STEP = (
    "step",
    "epoch",
    "index",
    "loss",
    "learning_rate",
    "source_tokens",
    "target_tokens",
    "positions",
    "all_target_tokens",
    "seconds",
)
POSITIVE = {"step", "source_tokens", "target_tokens", "positions", "perplexity"}


def read_log(run: RunDirectory) -> Log:
    """Raises UserError if an entry lacks a number that the report needs."""
    if not run.log_file.exists():
        return Log(False, [], [], [])
    return Log(
        True,
        entries(run, "step", OF_A_STEP),
        entries(run, "validation", ("step", "loss", "perplexity", "all_target_tokens")),
        entries(run, "bleu", ("step", "bleu", "all_target_tokens")),
    )


def entries(run: RunDirectory, event: str, names: Sequence[str]) -> list[Entry]:
    found = run.read_log(event)
    for entry in found:
        for name in names:
            if not is_number(entry.get(name)) or name in POSITIVE and entry[name] <= 0:
                raise UserError(
                    f"{run.log_file}: damaged: an entry of kind {event} (step {entry.get('step')}) has no "
                    f"sound number {name!r}"
                )
    return found


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def manifest_of(config: Config) -> Manifest | None:
    """That of the run's data directory; None if it has none, or none that can be read."""
    directory = prepared_directory(config.data)
    try:
        return read_manifest(directory) if directory else None
    except UserError:
        return None


# Numbers --------------------------------------------------------------------------------------------------------------


def count(value: Any) -> str:
    return f"{value:,.0f}" if is_number(value) else UNKNOWN


def decimal(value: Any, places: int = 2) -> str:
    return f"{value:.{places}f}" if is_number(value) else UNKNOWN


def power(value: float) -> str:
    """3.3e18"""
    return f"{value:.2e}".replace("e+", "e")


# The run --------------------------------------------------------------------------------------------------------------


def of_run(run: RunDirectory, config: Config, log: Log) -> list[str]:
    settings, saved = config.training, run.checkpoints.steps()
    last = log.steps[-1]["step"] if log.steps else None
    if not log.exists:
        state = "no log: the weights have come without it"
    elif last is None:
        state = "no step is logged yet"
    else:
        state = f"step {last:,} of at most {settings.steps:,}"
    others = [path.name for path in (run.checkpoints.best, run.checkpoints.average) if path.exists()]
    rows = [
        ("parameters", count(size(config))),
        ("nearest to the paper's", named(nearest(config))),
        ("device", settings.device),
        ("precision", precision(config)),
        ("state", state),
        ("checkpoints of steps", f"{len(saved)}, {saved[0].stem} to {saved[-1].stem}" if saved else "none"),
        ("other checkpoints", ", ".join(others) or "none"),
    ]
    return [f"# Run {run.path.resolve().name}", "", table(["run", ""], rows)]


def precision(config: Config) -> str:
    return config.training.precision or ("fp32" if config.training.device == "cpu" else "tf32")


def named(name: str) -> str:
    return f"row {name} of Table 3" if name in TABLE3 else f"`{name}`"


# Deviations -----------------------------------------------------------------------------------------------------------

TELLING = {
    "training.steps",
    "training.max_tokens",
    "training.patience",
    "training.precision",
    "training.wire",
    "training.save_every",
    "training.average_last",
    "decoding.beam",
    "decoding.alpha",
    "decoding.extra_length",
}
"""Settings of `config.MAY_CHANGE` that have a bearing on what a run reaches."""


def differing(config: Config, paper: Config) -> dict[str, tuple[Any, Any]]:
    """Key -> value here, value of the paper's preset; without the names of files."""
    here = configs.flat(config) | {"training.precision": precision(config)}
    there = configs.flat(paper) | {"training.precision": precision(paper)}
    bookkeeping = configs.MAY_CHANGE - TELLING
    return {key: (here[key], there[key]) for key in here if here[key] != there[key] and key not in bookkeeping}


def nearest(config: Config) -> str:
    """The paper's preset that the model is (but for the vocabulary), else that of its language nearest in size."""
    papers = ["wmt14-en-fr-base", "wmt14-en-fr-big"] if config.data.target_language == "fr" else ["base", "big"]
    same = [name for name in [*papers, *TABLE3] if is_model_of(config, configs.preset(name))]
    return same[0] if same else min(papers, key=lambda name: abs(math.log(size(config) / size(configs.preset(name)))))


def size(config: Config) -> int:
    return sum(parameter_counts(config.model).values())


def is_model_of(config: Config, paper: Config) -> bool:
    """The same model and smoothing; but for the vocabulary, of which the paper says "about 37000"."""
    return not any(
        key.startswith("model.") and key != "model.vocab_size" or key == "training.eps_ls"
        for key in differing(config, paper)
    )


def of_deviations(config: Config) -> list[str]:
    name = nearest(config)
    rows = [
        (f"`{key}`", shown(here), shown(there))
        for key, (here, there) in differing(config, configs.preset(name)).items()
    ]
    text = ["## Deviations", ""]
    if not rows:
        return [*text, f"None from {named(name)}."]
    return [
        *text,
        f"From {named(name)}, the paper's configuration that is nearest:",
        "",
        table(["setting", "this run", named(name)], rows),
    ]


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# Data -----------------------------------------------------------------------------------------------------------------


def of_data(config: Config, manifest: Manifest | None) -> list[str]:
    data = config.data
    text = ["## Data", "", f"From {data.source_language} to {data.target_language}.", ""]
    if manifest is not None:
        return [*text, f"The prepared directory {Path(data.directory).name}:", "", *of_prepared(manifest)]
    if not data.names_text:
        return [*text, "The corpus that the package generates."]
    where = ", ".join(Path(file).name for file in data.files) or f"The directory {Path(data.directory).name}"
    try:
        corpus = read_corpus(data)
    except UserError:
        return [*text, f"{where}. The files cannot be read any more: how many pairs they held is {UNKNOWN}."]
    rows = [
        ("training pairs", count(len(corpus.train.source))),
        ("validation pairs", count(len(corpus.val.source)) if corpus.val else "none"),
    ]
    return [*text, f"{where}, as it is now:", "", table(["text", ""], rows)]


def of_prepared(manifest: Manifest) -> list[str]:
    """What the preparation has kept, and of what."""
    total, options = manifest.clean["total"], manifest.options
    fallback = ", and bytes for characters without one" if manifest.byte_fallback else ""
    rows = [
        ("data set", manifest.dataset or "files of one's own"),
        ("vocabulary", f"{count(manifest.vocab_size)} pieces{fallback}"),
        (
            "limits of a pair",
            f"{count(options.get('max_words'))} words, lengths in a ratio of "
            f"{decimal(options.get('max_ratio'), 1)}, {count(options.get('max_length'))} tokens",
        ),
        ("training pairs kept", f"{count(total.get('kept'))} of {count(total['lines'])} lines"),
        ("of these, repeated", count(manifest.clean.get("repeated"))),
        (
            "training pairs with a sentence of val or test",
            f"{count(total['held_out'])}, {'dropped' if options.get('drop_overlap') else 'kept'}",
        ),
        *((f"version of {name}", version) for name, version in manifest.versions.items()),
    ]
    parts = [
        [part.get("part", "all parts"), *(count(part.get(name)) for name in FATES)]
        for part in [*manifest.clean.get("parts", []), total]
    ]
    return [
        table(["prepared text", ""], rows),
        "",
        table(["part", *FATES.values()], parts),
        "",
        table(
            [
                "encoded",
                "pairs",
                "left out: a side empty",
                "left out: too many tokens",
                "source tokens",
                "target tokens",
                "mean lengths",
                "longest",
                "unknown",
            ],
            [row_of_split(name, counts) for name, counts in manifest.splits.items()],
        ),
    ]


FATES = {
    "lines": "lines",
    "kept": "kept",
    "empty": "a side empty",
    "too_long": "too many words",
    "ratio": "too unequal lengths",
    "held_out": "a sentence of val or test",
}
"""Of the pairs of a part: `cleaning.Counts`, in words."""


def row_of_split(name: str, counts: SplitCounts) -> list[str]:
    means = " and ".join(decimal(mean, 1) for mean in counts.mean_lengths)
    return [
        name,
        *map(count, (counts.pairs, counts.empty, counts.longer, counts.source_tokens, counts.target_tokens)),
        means,
        count(counts.longest),
        f"{counts.unk_share:.4%}",
    ]


# Course ---------------------------------------------------------------------------------------------------------------


def of_course(config: Config, log: Log) -> list[str]:
    text = ["## Course", ""]
    if not log.steps:
        return [*text, "No step is logged: how the training went is unknown."]
    steps, last = log.steps, log.steps[-1]
    source, target, positions, seconds = (
        sum(entry[name] for entry in steps) for name in ("source_tokens", "target_tokens", "positions", "seconds")
    )
    n, overflown = len(steps), sum(entry.get("grad_norm") is None for entry in steps)
    rows = [
        ("steps", f"{last['step']:,}" + ("" if n == last["step"] else f", of which {n:,} are in the log")),
        ("epochs", epochs(steps)),
        ("real source tokens", count(source)),
        ("real target tokens", count(target)),
        ("source tokens of a step, mean", f"{source / n:,.0f} (paper: about {TOKENS_PER_STEP:,})"),
        ("target tokens of a step, mean", f"{target / n:,.0f} (paper: about {TOKENS_PER_STEP:,})"),
        ("padding, of all positions", f"{1 - (source + target) / positions:.1%}"),
        ("time in steps", format_duration(seconds)),
        ("time of a step, mean", f"{seconds / n:.3g} seconds"),
        ("target tokens a second", count(target / seconds) if seconds else UNKNOWN),
        ("training loss of the last step", f"{last['loss']:.4f} nats a token, smoothed, with dropout"),
    ]
    if overflown:
        rows.append(("steps passed over, since gradients overflowed", count(overflown)))
    return [
        *text,
        table(["course", ""], rows),
        "",
        "The log has no dates: what validation, translating for BLEU, saving and interruptions took is unknown.",
    ]


def epochs(steps: list[Entry]) -> str:
    """How often the text was gone through, as far as the log tells how many steps that takes."""
    last = steps[-1]
    of_last_epoch = last["index"] + 1
    whole = [entry["index"] + 1 for entry in steps if entry["epoch"] < last["epoch"]]
    if not whole:
        return f"{of_last_epoch:,} steps of the first"
    return f"{last['epoch'] + of_last_epoch / max(whole):,.2f}"


# Quality --------------------------------------------------------------------------------------------------------------


def of_perplexity(config: Config, manifest: Manifest | None, log: Log) -> list[str]:
    text = ["## Perplexity", ""]
    if not log.validations:
        return [*text, f"No validation is logged: the perplexity is {UNKNOWN}."]
    best, last = min(log.validations, key=lambda entry: entry["loss"]), log.validations[-1]
    rows = [
        [name, f"{entry['step']:,}", f"{entry['loss']:.4f}", f"{entry['perplexity']:.2f}"]
        for name, entry in (("best", best), ("last", last))
    ]
    text += [table(["validation", "step", "nats a token", "perplexity a token"], rows), ""]
    row = row_of_table3(config)
    if row is None:
        return [*text, "The paper has no perplexity for this model."]
    if not is_papers_text(config, manifest):
        return [
            *text,
            f"{named(row)} has {PAPER_TABLE3[row].ppl:.2f} in the paper, on newstest2013 (Table 3). It "
            "cannot be compared: this is other text, as far as the run tells, and other text makes other tokens.",
        ]
    return [
        *text,
        f"The paper: {PAPER_TABLE3[row].ppl:.2f} on newstest2013 (Table 3, {named(row)}). This is "
        "indicative only: a perplexity per piece depends on how text is cut into pieces, and sentencepiece cuts it "
        "otherwise than the paper's byte-pair encoding, however many pieces either has.",
    ]


def row_of_table3(config: Config) -> str | None:
    """The line of Table 3 (or base, or big) whose model this is, English to German."""
    if (config.data.source_language, config.data.target_language) != ("en", "de"):
        return None
    return next((name for name in PAPER_TABLE3 if is_model_of(config, configs.preset(name))), None)


def is_papers_text(config: Config, manifest: Manifest | None) -> bool:
    """Whether the text is WMT 2014's of the run's languages, as `scratchformer data` has prepared it."""
    return manifest is not None and manifest.dataset == f"wmt14-{languages_of(config)}"


def languages_of(config: Config) -> str:
    """en-de"""
    return f"{config.data.source_language}-{config.data.target_language}"


def of_scores(run: RunDirectory, config: Config, manifest: Manifest | None) -> list[str]:
    text, scores = ["## Scores", ""], without_repetitions(run.read_evaluations())
    if not scores:
        return [*text, "Nothing is evaluated yet: `scratchformer evaluate` records its scores in the run."]
    head = [
        "checkpoint",
        "step",
        "source",
        "sentences",
        "beam",
        "alpha",
        "sacreBLEU",
        "chrF",
        "length ratio",
        "BLEU as in the paper",
        "the paper",
    ]
    rows = [
        [
            str(entry.get("checkpoint", UNKNOWN)),
            count(entry.get("step")),
            Path(str(entry.get("source"))).name,
            count(entry.get("n_sentences")),
            count(entry.get("beam")),
            f"{entry.get('alpha', UNKNOWN)}",
            decimal(entry.get("bleu")),
            decimal(entry.get("chrf")),
            decimal(entry.get("length_ratio"), 3),
            decimal(entry["paper_bleu"]) if is_number(entry.get("paper_bleu")) else "not measured",
            papers_score(entry, config, manifest)[0],
        ]
        for entry in scores
    ]
    signatures = sorted(
        {
            str(entry[name])
            for entry in scores
            for name in ("bleu_signature", "chrf_signature", "paper_signature")
            if entry.get(name)
        }
    )
    remarks = list(dict.fromkeys(papers_score(entry, config, manifest)[1] for entry in scores))
    return [*text, table(head, rows), "", *remarks, "", *(f"- `{signature}`" for signature in signatures)]


def without_repetitions(scores: list[Entry]) -> list[Entry]:
    """One of those that say the same: the last, or the last with the paper's measure."""
    kept: dict[str, Entry] = {}
    for entry in scores:
        same = json.dumps(
            [entry.get(name) for name in ("checkpoint", "step", "source", "reference", "beam", "alpha", "bleu", "chrf")]
        )
        if same not in kept or is_number(entry.get("paper_bleu")):
            kept[same] = entry
    return list(kept.values())


def papers_score(entry: Entry, config: Config, manifest: Manifest | None) -> tuple[str, str]:
    """-> the paper's BLEU for this test set and model, and what there is to say about it"""
    languages, split = languages_of(config), split_of(entry, config)
    if not is_papers_text(config, manifest):
        return "–", f"Without numbers of the paper: as far as the run tells, its text is not WMT 2014's {languages}."
    for name in (f"wmt14-{languages}-base", f"wmt14-{languages}-big"):
        if name in PAPER_TABLE2 and split == "test" and is_model_of(config, PRESETS[name]):
            printed = PAPER_TABLE2[name]
            in_text = f" ({printed.in_text} in its text)" if printed.in_text else ""
            return f"{printed.bleu}{in_text}", (
                f"test is newstest2014, Table 2; the paper averages checkpoints there, beam 4, alpha 0.6. "
                f"{WHAT_TO_COMPARE[languages]}"
            )
    row = row_of_table3(config)
    if row is not None and split == "val":
        return f"{PAPER_TABLE3[row].bleu}", (
            f"val is newstest2013, Table 3, where the paper averages no checkpoints. {WHAT_TO_COMPARE[languages]}"
        )
    return "–", "Without a number of the paper: it has none for this model on this text."


WHAT_TO_COMPARE = {
    "en-de": 'Its numbers belong beside "BLEU as in the paper"; sacreBLEU measures something else.',
    "en-fr": 'How it cut French into tokens is not known, and the script that "BLEU as in the paper" follows is for '
    "German: compared with either column, its number is indicative only.",
}


def split_of(entry: Entry, config: Config) -> str | None:
    """test or val, if the scored text is that of the data directory."""
    directory, language = Path(config.data.directory), config.data.source_language
    return next(
        (split for split in ("test", "val") if entry.get("source") == str(directory / f"{split}.{language}")), None
    )


# Cost -----------------------------------------------------------------------------------------------------------------


def of_cost(config: Config, manifest: Manifest | None, log: Log, tflops: float | None) -> list[str]:
    text = ["## Cost", ""]
    if not log.steps:
        text += [f"No step is logged: what the training cost is {UNKNOWN}.", ""]
        return [*text, *papers_cost(config)]
    source, target, seconds = (
        sum(entry[name] for entry in log.steps) for name in ("source_tokens", "target_tokens", "seconds")
    )
    of_source, of_target = weights_per_token(config.model)
    with_weights = (FORWARD + BACKWARD) * (of_source * source + of_target * target)
    rows = [
        (
            "matrix products with weights",
            f"{power(with_weights)} FLOPs",
            "arithmetic: real tokens of the log, forward and backward",
        )
    ]
    counted = with_weights
    if manifest:
        S, T = manifest.splits["train"].mean_lengths
        attention = (FORWARD + BACKWARD) * source / S * attention_products(config.model, S, T)
        counted += attention
        rows += [
            (
                "of queries with keys, and weights with values",
                f"{power(attention)} FLOPs",
                f"arithmetic, for sentences of {S:.1f} and {T:.1f} tokens, the prepared text's means",
            ),
            ("together", f"{power(counted)} FLOPs", ""),
        ]
    else:
        rows.append(
            (
                "of queries with keys, and weights with values",
                UNKNOWN,
                "the log tells no lengths of sentences; in the paper's base model, a hundredth of the above",
            )
        )
    if tflops is None:
        rows.append(("capacity of the machine", UNKNOWN, "`report --tflops X` takes it, and tells the share used"))
    else:
        capacity = capacity_flops(seconds / 3600, 1, tflops)
        rows.append(
            ("capacity of the machine", f"{power(capacity)} FLOPs", f"{format_duration(seconds)} at {tflops:g} TFLOPS")
        )
        rows.append(("share of it", f"{counted / capacity:.1%}" if capacity else UNKNOWN, ""))
    return [*text, table(["cost", "", "how it is known"], rows), "", *papers_cost(config)]


def papers_cost(config: Config) -> list[str]:
    """Table 2's FLOPs, and why the products counted above are fewer."""
    name = paper_model(config)
    if name is None:
        return ["The paper does not say what a model of these sizes cost."]
    paper = PAPER_TRAINING[name]
    capacity = capacity_flops(paper.hours, GPUS, P100_TFLOPS)
    steps, products = paper.steps, paper_matrix_flops(name)
    return [
        f"The paper's {name} model: {power(paper.flops)} FLOPs (Table 2). That is no count of operations but what "
        f"the machine could have computed meanwhile: {paper.hours:g} hours x {GPUS} GPUs x {P100_TFLOPS} "
        f"TFLOPS = {power(capacity)}. The matrix products of {steps:,} steps of {TOKENS_PER_STEP:,} source and as "
        f"many target tokens are {power(products)} FLOPs, {products / capacity:.0%} of it. So compare the "
        f"products counted for a run with {power(products)}, and its machine's capacity with {power(paper.flops)}."
    ]


# Figures --------------------------------------------------------------------------------------------------------------


def drawn(config: Config, log: Log, directory: Path) -> list[str]:
    """Draw what the log tells -> the page's last section"""
    if not log.steps:
        return []
    settings = config.training
    made = {"Loss": ("loss", figures.loss_figure(log.steps, log.validations, []))}
    if log.validations:
        made["Perplexity"] = ("perplexity", figures.perplexity_figure(log.validations))
    if log.bleus:
        made["Validation BLEU"] = ("bleu", figures.bleu_figure(log.bleus))
    made["Learning rate"] = (
        "learning_rate",
        figures.schedule_figure(config.model.d_model, settings.warmup, settings.lr_factor, settings.steps, log.steps),
    )
    for name, figure in made.values():
        figures.save(figure, directory / f"{name}.png")
    return ["## Figures", "", *(f"![{title}]({name}.png)" for title, (name, _) in made.items())]
