"""Write a page of Markdown on a run: what it was, what it reached and what it cost, beside the paper's numbers.

Everything on the page is read from the run's directory (`config.toml`, log, evaluations, names of checkpoints) and its
text. What is not there is called unknown. The same run gives the same bytes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from scratchformer import config as configs
from scratchformer.config import PRESETS, TABLE3, Config
from scratchformer.errors import UserError
from scratchformer.experiments import figures, paper
from scratchformer.experiments.figures import Figure
from scratchformer.experiments.flops import BACKWARD, FORWARD, attention_products, weights_per_token
from scratchformer.experiments.markdown import Markup, code, escaped, require_page, table, write_page
from scratchformer.experiments.paper import PAPER_TABLE2, PAPER_TABLE3, TOKENS_PER_STEP, capacity_flops
from scratchformer.experiments.sizes import format_duration
from scratchformer.experiments.training_log import Entry, Log, is_number, read_log
from scratchformer.files import make_directory, whole_file
from scratchformer.nn.sizes import parameter_counts
from scratchformer.preparation.prepared import Manifest, read_manifest
from scratchformer.tasks.translation import prepared_directory, read_corpus
from scratchformer.training.run import RunDirectory, require_task

UNKNOWN = "unknown"
FIGURES = {"loss": "Loss", "perplexity": "Perplexity", "bleu": "Validation BLEU", "learning_rate": "Learning rate"}
"""Name of each file, without its suffix -> title"""


def write_report(run: RunDirectory, out: Path | None = None, tflops: float | None = None) -> Path:
    """Write `report.md` and its figures into the directory `out` (None: RUN/report) -> the page

    tflops  what all training devices together can sustain; the report then says what share of it the run used

    Everything that can fail but writing is done first.

    Raises UserError if there is no run, its log is damaged, or the report cannot be written. `out` may hold an older
    report, but no other file of such a name; and RUN/report may not be a link.
    """
    if tflops is not None and not 0 < tflops < math.inf:
        raise UserError(f"--tflops {tflops:g} must be above 0, and finite")
    require_task(run, "translation")
    config, log = configs.load(run.config_file), read_log(run)
    directory = out or run.path / "report"
    page, places = directory / "report.md", {name: directory / f"{name}.png" for name in FIGURES}
    if out is None:
        figures.require_no_link(directory)
    else:
        require_page(page, places.values(), run)
    manifest = manifest_of(config)
    drawn = {name: figures.encoded(figure, places[name]) for name, figure in drawn_figures(config, log).items()}
    sections = {
        "Deviations": deviations_section(config),
        "Data": data_section(config, manifest),
        "Course": course_section(log),
        "Perplexity": perplexity_section(config, manifest, log),
        "Scores": scores_section(run, config, manifest),
        "Cost": cost_section(config, manifest, log, tflops),
        "Figures": ["\n".join(f"![{FIGURES[name]}]({name}.png)" for name in drawn)] if drawn else [],
    }
    paragraphs = [f"# Run {escaped(run.path.resolve().name)}", run_table(run, config, log)]
    for title, section in sections.items():
        paragraphs += [f"## {title}", *section] if section else []
    make_directory(directory)
    write_page(page, "\n\n".join(paragraphs) + "\n")
    for name, data in drawn.items():
        with whole_file(places[name]) as file:
            file.write(data)
    return page


# The files of the run -------------------------------------------------------------------------------------------------


def total(entries: list[Entry], name: str) -> float:
    """The sum of one value over all entries."""
    return sum(entry[name] for entry in entries)


def manifest_of(config: Config) -> Manifest | None:
    """The manifest of the run's data directory; None if there is none that can be read."""
    try:
        directory = prepared_directory(config.data)
        return read_manifest(directory) if directory else None
    except UserError:
        return None


# Numbers --------------------------------------------------------------------------------------------------------------


def integer(value: Any) -> str:
    """1234 -> "1,234"; what is not a number is unknown."""
    return f"{value:,.0f}" if is_number(value) else UNKNOWN


def decimal(value: Any, places: int = 2) -> str:
    """1.234 -> "1.23"; what is not a number is unknown."""
    return f"{value:.{places}f}" if is_number(value) else UNKNOWN


def scientific(value: float) -> str:
    """3.3e18"""
    return f"{value:.2e}".replace("e+", "e")


# The run --------------------------------------------------------------------------------------------------------------


def run_table(run: RunDirectory, config: Config, log: Log) -> str:
    settings, saved = config.training, run.checkpoints.steps()
    if not log.exists:
        state = "no log: the weights were imported without one"
    elif not log.steps:
        state = "no step is logged yet"
    else:
        state = f"step {log.steps[-1]['step']:,} of at most {settings.steps:,}"
    others = [path.name for path in (run.checkpoints.best, run.checkpoints.average) if path.exists()]
    rows = [
        ("parameters", integer(n_parameters(config))),
        ("nearest to the paper's", preset_label(nearest_preset(config))),
        ("device", settings.device),
        ("precision", precision(config)),
        ("state", state),
        ("checkpoints of steps", f"{len(saved)}, {saved[0].stem} to {saved[-1].stem}" if saved else "none"),
        ("other checkpoints", ", ".join(others) or "none"),
    ]
    return table(["run", ""], rows)


def n_parameters(config: Config) -> int:
    return sum(parameter_counts(config.model).values())


def precision(config: Config) -> str:
    """The precision as configured, or the default of the device."""
    return config.training.precision or ("fp32" if config.training.device == "cpu" else "tf32")


def preset_label(name: str) -> Markup:
    return Markup(f"row {name} of Table 3") if name in TABLE3 else code(name)


# Deviations -----------------------------------------------------------------------------------------------------------

AFFECT_THE_RESULT = {
    "training.steps",
    "training.max_tokens",
    "training.patience",
    "training.precision",
    "training.gradient_dtype",
    "training.save_every",
    "training.average_last",
    "decoding.beam",
    "decoding.alpha",
    "decoding.extra_length",
}
"""Settings of `config.MAY_CHANGE` that influence how good the translations become."""


def deviations_section(config: Config) -> list[str]:
    name = nearest_preset(config)
    rows = [
        (code(key), json.dumps(here, ensure_ascii=False), json.dumps(there, ensure_ascii=False))
        for key, (here, there) in deviations(config, configs.preset(name)).items()
    ]
    label = preset_label(name)
    if not rows:
        return [f"None from {label}."]
    return [f"From {label}, the paper's configuration that is nearest:", table(["setting", "this run", label], rows)]


def deviations(config: Config, preset: Config) -> dict[str, tuple[Any, Any]]:
    """Key -> value here, value of the paper's preset. Names of files, and what changes no result, are left out."""
    here = configs.flat(config) | {"training.precision": precision(config)}
    there = configs.flat(preset) | {"training.precision": precision(preset)}
    ignored = configs.MAY_CHANGE - AFFECT_THE_RESULT
    return {key: (here[key], there[key]) for key in here if here[key] != there[key] and key not in ignored}


def nearest_preset(config: Config) -> str:
    """The paper's preset that has this model (but for the vocabulary), else the one of its language nearest in size."""
    presets = ["wmt14-en-fr-base", "wmt14-en-fr-big"] if config.data.target_language == "fr" else ["base", "big"]
    for name in [*presets, *TABLE3]:
        if is_same_model(config, configs.preset(name)):
            return name
    return min(presets, key=lambda name: abs(math.log(n_parameters(config) / n_parameters(configs.preset(name)))))


def is_same_model(config: Config, preset: Config) -> bool:
    """Whether model and label smoothing agree. The vocabulary may differ: the paper says "about 37000" of it."""
    return not any(
        key.startswith("model.") and key != "model.vocab_size" or key == "training.eps_ls"
        for key in deviations(config, preset)
    )


# Data -----------------------------------------------------------------------------------------------------------------


def data_section(config: Config, manifest: Manifest | None) -> list[str]:
    data = config.data
    languages = f"From {escaped(data.source_language)} to {escaped(data.target_language)}."
    if manifest is not None:
        return [languages, f"The prepared directory {escaped(Path(data.directory).name)}:", *prepared_tables(manifest)]
    if not data.names_text:
        return [languages, "The bundled corpus."]
    names = [escaped(Path(file).name) for file in data.files]
    where = ", ".join(names) or f"The directory {escaped(Path(data.directory).name)}"
    try:
        if not all(Path(file).is_file() for file in data.files):  # a pipe would be waited for
            raise UserError("not files on disk")
        corpus = read_corpus(data)
    except UserError:
        return [languages, f"{where}. The files cannot be read any more: how many pairs they held is {UNKNOWN}."]
    rows = [
        ("training pairs", integer(len(corpus.train.source))),
        ("validation pairs", integer(len(corpus.val.source)) if corpus.val else "none"),
    ]
    return [languages, f"{where}, as it is now:", table(["text", ""], rows)]


CLEANING_COUNTS = {
    "lines": "lines",
    "kept": "kept",
    "empty": "a side empty",
    "too_long": "too many words",
    "ratio": "too unequal lengths",
    "held_out": "a sentence of val or test",
}
"""`cleaning.Counts` of a part, and how the report calls them."""


def prepared_tables(manifest: Manifest) -> list[str]:
    """What the preparation has kept, and out of what."""
    cleaned, options = manifest.clean["total"], manifest.options
    fallback = ", and bytes for characters without one" if manifest.byte_fallback else ""
    limits = (
        f"{integer(options.get('max_words'))} words, lengths in a ratio of {decimal(options.get('max_ratio'), 1)}, "
        f"{integer(options.get('max_length'))} tokens"
    )
    held_out = f"{integer(cleaned['held_out'])}, {'dropped' if options.get('drop_overlap') else 'kept'}"
    prepared = [
        ("data set", manifest.dataset or "files of one's own"),
        ("vocabulary", f"{integer(manifest.vocab_size)} pieces{fallback}"),
        ("limits of a pair", limits),
        ("training pairs kept", f"{integer(cleaned.get('kept'))} of {integer(cleaned['lines'])} lines"),
        ("of these, repeated", integer(manifest.clean.get("repeated"))),
        ("training pairs with a sentence of val or test", held_out),
        *((f"version of {name}", version) for name, version in manifest.versions.items()),
    ]
    parts = [
        [part.get("part", "all parts"), *(integer(part.get(name)) for name in CLEANING_COUNTS)]
        for part in [*manifest.clean.get("parts", []), cleaned]
    ]
    splits = [
        {
            "encoded": name,
            "pairs": integer(counts.pairs),
            "left out: a side empty": integer(counts.empty),
            "left out: too many tokens": integer(counts.longer),
            "source tokens": integer(counts.source_tokens),
            "target tokens": integer(counts.target_tokens),
            "mean lengths": " and ".join(decimal(mean, 1) for mean in counts.mean_lengths),
            "longest": integer(counts.longest),
            "unknown": f"{counts.unk_share:.4%}",
        }
        for name, counts in manifest.splits.items()
    ]
    return [
        table(["prepared text", ""], prepared),
        table(["part", *CLEANING_COUNTS.values()], parts),
        table(splits[0], [split.values() for split in splits]),
    ]


# Course ---------------------------------------------------------------------------------------------------------------


def course_section(log: Log) -> list[str]:
    if not log.steps:
        return ["No step is logged: how the training went is unknown."]
    steps, n, last = log.steps, len(log.steps), log.steps[-1]
    source, target, positions, seconds = (
        total(steps, name) for name in ("source_tokens", "target_tokens", "positions", "seconds")
    )
    overflows = sum(entry.get("grad_norm") is None for entry in steps)
    rows = [
        ("steps", f"{last['step']:,}" + ("" if n == last["step"] else f", of which {n:,} are in the log")),
        ("epochs", epochs(steps)),
        ("real source tokens", integer(source)),
        ("real target tokens", integer(target)),
        ("source tokens of a step, mean", f"{source / n:,.0f} (paper: about {TOKENS_PER_STEP:,})"),
        ("target tokens of a step, mean", f"{target / n:,.0f} (paper: about {TOKENS_PER_STEP:,})"),
        ("padding, of all positions", f"{1 - (source + target) / positions:.1%}"),
        ("time in steps", format_duration(seconds)),
        ("time of a step, mean", f"{seconds / n:.3g} seconds"),
        ("target tokens a second", integer(target / seconds) if seconds else UNKNOWN),
        ("training loss of the last step", f"{last['loss']:.4f} nats a token, smoothed, with dropout"),
    ]
    if overflows:
        rows.append(("steps skipped, since gradients overflowed", integer(overflows)))
    no_dates = "The log has no dates: what validation, translating for BLEU, saving and interruptions took is unknown."
    return [table(["course", ""], rows), no_dates]


def epochs(steps: list[Entry]) -> str:
    """How many times training went through the text, if the log shows how many steps that takes."""
    last = steps[-1]
    in_last_epoch = last["index"] + 1
    whole = [entry["index"] + 1 for entry in steps if entry["epoch"] < last["epoch"]]
    if not whole:
        return f"{in_last_epoch:,} steps of the first"
    return f"{last['epoch'] + in_last_epoch / max(whole):,.2f}"


# Quality --------------------------------------------------------------------------------------------------------------


def perplexity_section(config: Config, manifest: Manifest | None, log: Log) -> list[str]:
    if not log.validations:
        return [f"No validation is logged: the perplexity is {UNKNOWN}."]
    best, last = min(log.validations, key=lambda entry: entry["loss"]), log.validations[-1]
    rows = [
        [name, f"{entry['step']:,}", f"{entry['loss']:.4f}", f"{entry['perplexity']:.2f}"]
        for name, entry in (("best", best), ("last", last))
    ]
    ours, row = table(["validation", "step", "nats a token", "perplexity a token"], rows), row_of_table3(config)
    if row is None:
        return [ours, "The paper has no perplexity for this model."]
    label, perplexity = preset_label(row), f"{PAPER_TABLE3[row].ppl:.2f}"
    if not is_paper_text(config, manifest):
        return [
            ours,
            f"{label} has {perplexity} in the paper, on newstest2013 (Table 3). The two cannot be compared: as far as "
            "the run tells, this is other text, and other text makes other tokens.",
        ]
    return [
        ours,
        f"The paper: {perplexity} on newstest2013 (Table 3, {label}). This is indicative only: a perplexity per piece "
        "depends on how text is cut into pieces, and sentencepiece cuts it differently from the paper's byte-pair "
        "encoding, even into the same number of pieces.",
    ]


def row_of_table3(config: Config) -> str | None:
    """The row of Table 3 (or base, or big) that has this model, English to German."""
    if languages_of(config) != "en-de":
        return None
    return next((name for name in PAPER_TABLE3 if is_same_model(config, configs.preset(name))), None)


def is_paper_text(config: Config, manifest: Manifest | None) -> bool:
    """Whether the text is that of WMT 2014 in the run's languages, as `scratchformer data` prepares it."""
    return manifest is not None and manifest.dataset == f"wmt14-{languages_of(config)}"


def languages_of(config: Config) -> str:
    """en-de"""
    return f"{config.data.source_language}-{config.data.target_language}"


def scores_section(run: RunDirectory, config: Config, manifest: Manifest | None) -> list[str]:
    scores = without_duplicates([scalars(entry) for entry in run.read_evaluations()])
    if not scores:
        return ["Nothing is evaluated yet: `scratchformer evaluate` records its scores in the run."]
    beside = [paper_score(entry, config, manifest) for entry in scores]
    rows = [
        {
            "checkpoint": entry.get("checkpoint", UNKNOWN),
            "step": integer(entry.get("step")),
            "source": Path(str(entry.get("source", UNKNOWN))).name,
            "sentences": integer(entry.get("n_sentences")),
            "beam": integer(entry.get("beam")),
            "alpha": entry.get("alpha", UNKNOWN),
            "sacreBLEU": decimal(entry.get("bleu")),
            "chrF": decimal(entry.get("chrf")),
            "length ratio": decimal(entry.get("length_ratio"), 3),
            "BLEU as in the paper": decimal(entry["paper_bleu"]) if has_paper_bleu(entry) else "not measured",
            "the paper": printed,
        }
        for entry, (printed, _) in zip(scores, beside)
    ]
    names = "bleu_signature", "chrf_signature", "paper_signature"
    signatures = sorted({str(entry[name]) for entry in scores for name in names if entry.get(name)})
    remarks = dict.fromkeys(remark for _, remark in beside)  # each one once
    return [
        table(rows[0], [row.values() for row in rows]),
        "\n".join(remarks),
        "\n".join(f"- {escaped(signature)}" for signature in signatures),
    ]


def scalars(entry: Entry) -> Entry:
    """The values of an entry that are text or numbers; others are damage, and left out."""
    return {name: value for name, value in entry.items() if isinstance(value, str) or is_number(value)}


def has_paper_bleu(entry: Entry) -> bool:
    return is_number(entry.get("paper_bleu"))


def without_duplicates(scores: list[Entry]) -> list[Entry]:
    """Of entries that agree, keep the last, or the last with the paper's BLEU."""
    names = "checkpoint", "step", "source", "reference", "beam", "alpha", "bleu", "chrf"
    kept: dict[str, Entry] = {}
    for entry in scores:
        key = json.dumps([entry.get(name) for name in names])
        if key not in kept or has_paper_bleu(entry):
            kept[key] = entry
    return list(kept.values())


def paper_score(entry: Entry, config: Config, manifest: Manifest | None) -> tuple[str, str]:
    """-> the paper's BLEU for this test set and model ("–" if it has none), and a remark on it"""
    languages, split = languages_of(config), split_of(entry, config)
    if not is_paper_text(config, manifest):
        text = f"WMT 2014's {escaped(languages)}"
        return "–", f"No number of the paper is shown: as far as the run tells, its text is not {text}."
    for name in (f"wmt14-{languages}-base", f"wmt14-{languages}-big"):
        if name in PAPER_TABLE2 and split == "test" and is_same_model(config, PRESETS[name]):
            printed = PAPER_TABLE2[name]
            in_text = f" ({printed.in_text} in its text)" if printed.in_text else ""
            return f"{printed.bleu}{in_text}", (
                "test is newstest2014, Table 2, where the paper averages checkpoints and uses beam 4, alpha 0.6. "
                f"{WHAT_TO_COMPARE[languages]}"
            )
    row = row_of_table3(config)
    if row is not None and split == "val":
        return f"{PAPER_TABLE3[row].bleu}", (
            f"val is newstest2013, Table 3, where the paper averages no checkpoints. {WHAT_TO_COMPARE[languages]}"
        )
    return "–", "No number of the paper is shown: it has none for this model on this text."


WHAT_TO_COMPARE = {
    "en-de": 'Compare its numbers with "BLEU as in the paper"; sacreBLEU measures something else.',
    "en-fr": 'How it cut French into tokens is not known, and the script that "BLEU as in the paper" follows is for '
    "German: compared with either column, its number is indicative only.",
}


def split_of(entry: Entry, config: Config) -> str | None:
    """test or val, if the scored text is that of the data directory."""
    directory, language = Path(config.data.directory), config.data.source_language
    for split in ("test", "val"):
        if entry.get("source") == str(directory / f"{split}.{language}"):
            return split
    return None


# Cost -----------------------------------------------------------------------------------------------------------------


def cost_section(config: Config, manifest: Manifest | None, log: Log, tflops: float | None) -> list[str]:
    if not log.steps:
        return [f"No step is logged: what the training cost is {UNKNOWN}.", paper_cost(config)]
    source, target, seconds = (total(log.steps, name) for name in ("source_tokens", "target_tokens", "seconds"))
    per_source, per_target = weights_per_token(config.model)
    counted = (FORWARD + BACKWARD) * (per_source * source + per_target * target)
    basis = "arithmetic: real tokens of the log, forward and backward"
    rows = [("matrix products with weights", f"{scientific(counted)} FLOPs", basis)]
    products = "of queries with keys, and weights with values"
    if manifest and all(manifest.splits["train"].mean_lengths):
        S, T = manifest.splits["train"].mean_lengths
        attention = (FORWARD + BACKWARD) * source / S * attention_products(config.model, S, T)
        counted += attention
        basis = f"arithmetic, for sentences of {S:.1f} and {T:.1f} tokens, the prepared text's means"
        rows.append((products, f"{scientific(attention)} FLOPs", basis))
        rows.append(("together", f"{scientific(counted)} FLOPs", ""))
    else:
        basis = "the log has no lengths of sentences; in the paper's base model, a hundredth of the above"
        rows.append((products, UNKNOWN, basis))
    if tflops is None:
        rows.append(
            ("capacity of the machine", UNKNOWN, Markup("`report --tflops X` takes it, and shows the share used"))
        )
    else:
        capacity = capacity_flops(seconds / 3600, 1, tflops)
        basis = f"{format_duration(seconds)} at {tflops:g} TFLOPS"
        rows.append(("capacity of the machine", f"{scientific(capacity)} FLOPs", basis))
        rows.append(("share of it", f"{counted / capacity:.1%}" if capacity else UNKNOWN, ""))
    return [table(["cost", "", "how it is known"], rows), paper_cost(config)]


def paper_cost(config: Config) -> str:
    """Table 2's FLOPs, and why the products counted above are fewer."""
    name = paper.paper_model(config)
    if name is None:
        return "The paper does not say what a model of these sizes cost."
    training, products = paper.PAPER_TRAINING[name], paper.paper_matrix_flops(name)
    capacity = capacity_flops(training.hours, paper.GPUS, paper.P100_TFLOPS)
    return (
        f"The paper's {name} model: {scientific(training.flops)} FLOPs (Table 2). That is not a count of operations "
        f"but what the machine could have computed in the time: {training.hours:g} hours x {paper.GPUS} GPUs x "
        f"{paper.P100_TFLOPS} TFLOPS = {scientific(capacity)}. The matrix products of {training.steps:,} steps of "
        f"{TOKENS_PER_STEP:,} source and as many target tokens are {scientific(products)} FLOPs, "
        f"{products / capacity:.0%} of it. So compare the products counted for a run with {scientific(products)}, "
        f"and its machine's capacity with {scientific(training.flops)}."
    )


# Figures --------------------------------------------------------------------------------------------------------------


def drawn_figures(config: Config, log: Log) -> dict[str, Figure]:
    """Draw what is in the log."""
    if not log.steps:
        return {}
    model, settings = config.model, config.training
    drawn = {"loss": figures.loss_figure(log.steps, log.validations, [])}
    if log.validations:
        drawn["perplexity"] = figures.perplexity_figure(log.validations)
    if log.bleus:
        drawn["bleu"] = figures.bleu_figure(log.bleus)
    schedule = figures.schedule_figure(model.d_model, settings.warmup, settings.lr_factor, settings.steps, log.steps)
    return drawn | {"learning_rate": schedule}
