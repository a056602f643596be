"""The experiments behind the lessons run, do what they say, and wrote the results that the lessons read."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK
from scratchformer.training.loop import validation_loss

pytest.importorskip("threadpoolctl")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
EXPERIMENTS = [
    "adam_and_warmup",
    "attention_scaling",
    "averaging",
    "embeddings",
    "feed_forward",
    "first_symbol",
    "label_smoothing",
    "longer",
    "norm_and_warmup",
    "reversal",
    "source_worth",
    "wires",
]


@pytest.fixture
def experiment(monkeypatch):
    """experiment("name") -> the script as a module"""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def layout(value):
    """The keys of nested dictionaries; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: layout(inner) for key, inner in value.items()}
    return [layout(item) for item in value[:1]] if isinstance(value, list) else None


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_writes_what_is_recorded_of_it(name, tmp_path):
    subprocess.run([sys.executable, "-W", "error", BENCHMARKS / f"{name}.py", "--quick", "--out", tmp_path], check=True)
    result = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    recorded = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert {"command", "provenance", "config", "seeds", "results"} <= result.keys()
    configs = {key: None for key in result if key.endswith("config")}  # settings may have come since
    assert layout(result | configs) == layout(recorded | configs)
    assert len(result["results"]) == len(recorded["results"])
    assert recorded["command"] == f"python benchmarks/{name}.py"  # all of it, not the quick one


def test_another_factor_of_the_scores_comes_with_its_gradient(experiment):
    attention = experiment("attention_scaling").DotProductAttention(0.7)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, length, 3, width)) for length, width in ((4, 6), (5, 6), (5, 7)))
    weights = np.exp(0.7 / np.sqrt(6) * np.einsum("bthk,bshk->bhts", q, k))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert np.allclose(attention.forward(q, k, v)[0], np.einsum("bhts,bshk->bthk", weights, v), rtol=1e-12)
    report = gradcheck(attention, q, k, v)
    assert report.passed, report


def test_small_words_beside_small_places_are_the_paper_s_in_another_unit(experiment, small_config):
    module, config = experiment("embeddings"), small_config()
    ids, D = np.array([[7, 8, 9, 10]]), config.model.d_model
    paper, small = (module.model_of(module.VARIANTS[name], config) for name in ("paper", "no factor, small positions"))
    read = [model.source_positions.forward(model.source_embedding.forward(ids)[0])[0] for model in (paper, small)]
    assert np.allclose(read[0], D**0.5 * read[1], atol=1e-5)


def test_a_small_start_and_short_steps_are_told_apart(experiment, small_config):
    module, config = experiment("embeddings"), small_config()
    ids, D = np.array([[7, 8, 9, PAD]]), config.model.d_model
    for name, variant in module.VARIANTS.items():
        model = module.model_of(variant, config)
        rows = model.source_embedding.weight.data
        begun, change = rows[ids].copy(), np.full(D, 0.5, rows.dtype)
        rows += change
        expected = D**variant.start * begun + D**variant.steps * change
        expected[ids == PAD] = 0
        for embedding in (model.source_embedding, model.target_embedding)[: 1 + (variant.tied == "all")]:
            assert np.allclose(embedding.forward(ids)[0], expected, atol=1e-4), name
        assert (model.unembedding.weight is model.target_embedding.weight) == (variant.tied != "none")


def test_rows_dealt_anew_are_other_ids_for_the_same_words(experiment, begin):
    pairs = begin().data.train
    module, vocab_size = experiment("embeddings"), int(pairs.target.ids.max()) + 1
    anew = module.dealt_anew(pairs, vocab_size)
    ids, new_ids = pairs.target.ids, anew.target.ids
    assert len(set(zip(ids.tolist(), new_ids.tolist()))) == len(set(ids.tolist())) == len(set(new_ids.tolist()))
    assert np.array_equal(ids[ids < 4], new_ids[ids < 4]) and not np.array_equal(ids, new_ids)
    assert anew.source is pairs.source and np.array_equal(anew.lengths, pairs.lengths)


def test_smaller_weights_make_up_for_the_factor_until_the_first_step(experiment, small_config):
    module, config = experiment("attention_scaling"), small_config()
    ids = np.array([[7, 8, 9, 10], [11, 12, 13, 14]])
    paper, small, unscaled = (
        module.model_of(name, config).forward(ids, ids)[0] for name in ("1/sqrt(d_k)", "1, smaller start", "1")
    )
    assert np.allclose(small, paper, atol=1e-5)
    assert not np.allclose(unscaled, paper, atol=1e-2)


def test_the_gradients_of_queries_and_keys_are_not_those_of_values(experiment, small_config):
    module = experiment("attention_scaling")
    model = module.model_of("1", small_config())
    for layer in module.attention_layers(model).values():
        for array, gradient in module.query_key_parameters(layer):
            array[...], gradient[...] = 0, 1
        n_marked = sum(parameter.grad.sum() for parameter in layer.parameters().values())
        assert n_marked == 2 * (16 + 1) * layer.h * layer.d_k  # weights and biases; d_model = 16
    ids = np.array([[7, 8, 9, 10]])
    caches = list(module.attention_caches(model.forward(ids, ids)[1]))
    assert len(caches) == len(module.attention_layers(model))
    assert all(np.ptp(module.scores(cache)) == 0 for cache in caches)  # no queries, no keys


def test_other_steps_are_other_steps_of_queries_and_keys_alone(experiment, small_config):
    module, config = experiment("attention_scaling"), small_config()
    moved = []
    for ratio in (1.0, 0.5):
        model = module.model_of("1", config)
        before = model.store.data.copy()
        model.store.grad[...] = np.random.default_rng(0).standard_normal(before.size)
        module.AdamWithOtherSteps(model, config, ratio).step(0.01)
        shares = model.store.named_views(model.store.data - before)
        moved.append(
            np.array(
                [
                    np.abs(shares[f"decoder.layers.0.cross_attention.{name}"]).mean()
                    for name in ("q.weight", "q.bias", "output.weight")
                ]
            )
        )
    assert np.allclose(moved[0], 0.01, rtol=1e-3)
    assert np.allclose(moved[1], [0.005, 0.005, 0.01], rtol=1e-3)


def test_with_start_and_steps_both_smaller_training_goes_as_the_paper_s(experiment, begin):
    module, trainer = experiment("attention_scaling"), begin()
    paper, both, start = (
        [loss for _, loss in module.run(variant, trainer.data, trainer.config)["curve"]]
        for variant in ("1/sqrt(d_k)", "1, both smaller", "1, smaller start")
    )
    assert both == pytest.approx(paper, rel=1e-4)
    assert start[-1] != pytest.approx(paper[-1], rel=1e-3)


def test_without_warm_up_only_the_rates_before_its_end_differ(experiment, small_config):
    module, config = experiment("norm_and_warmup"), small_config()  # warmup = 20
    rates = {
        way: [module.learning_rate(step, way, 0.01, config) for step in (1, 10, 20, 80)] for way in ("warm-up", "none")
    }
    assert rates["warm-up"] == pytest.approx([0.0005, 0.005, 0.01, 0.005])
    assert rates["none"] == pytest.approx([0.01, 0.01, 0.01, 0.005])


def test_averaging_v_moves_no_weight_and_leaves_the_first_step_its_length(experiment, begin):
    module, trainer = experiment("norm_and_warmup"), begin()
    store, config, optimizer = trainer.model.store, trainer.config, Adam(trainer.model)
    weights = store.data.copy()
    module.average_v(trainer.model, optimizer, trainer.data, config)
    assert np.array_equal(store.data, weights)
    mean_square = (0.98 * optimizer.v + 0.02 * store.grad**2) / (1 - 0.98**21)  # warmup = 20, and this step
    optimizer.step(0.01 * module.correction_of_m(1, config))
    used = mean_square > 1e-10
    expected = -0.01 * store.grad[used] / np.sqrt(mean_square[used])
    assert used.mean() > 0.5
    assert np.allclose((store.data - weights)[used], expected, rtol=1e-2, atol=1e-5)


def test_training_ends_where_the_loss_is_no_number(experiment, begin):
    trainer, module = begin(), experiment("small_training")
    curve = module.train(trainer.model, Adam(trainer.model), trainer.data, trainer.config, lambda step: 1e30)
    assert module.numbers(curve)[-1][1] is None and curve[-1][0] < trainer.config.training.steps
    assert module.spread([1.0, None]) == {"mean": None, "lowest": None, "highest": None}
    assert module.spread([1.0, 2.0, 6.0]) == {"mean": 3.0, "lowest": 1.0, "highest": 6.0}


def test_two_linear_maps_are_the_feed_forward_network_without_its_relu(experiment):
    random = np.random.default_rng(0)
    layer = experiment("feed_forward").TwoLinearMaps(4, 7, random, "float64")
    x = random.standard_normal((2, 3, 4))
    y, _ = layer.forward(x)
    assert np.allclose(y, x @ (layer.inner.weight.data @ layer.outer.weight.data), rtol=1e-12)  # biases are 0
    report = gradcheck(layer, x)
    assert report.passed, report


def test_what_a_variant_of_the_feed_forward_network_leaves_out(experiment, small_config):
    module, config = experiment("feed_forward"), small_config()
    models = {name: module.build(module.VARIANTS[name], config) for name in ("none", "4 d_model, no ReLU", "4 d_model")}
    names = {name: set(model.parameters()) for name, model in models.items()}
    assert names["4 d_model"] == names["4 d_model, no ReLU"]
    assert not any("feed_forward" in name for name in names["none"])
    assert models["none"].store.data.size < models["4 d_model"].store.data.size
    ids = np.array([[7, 8, 9, 10]])
    with_relu, without = (models[name].forward(ids, ids)[0] for name in ("4 d_model", "4 d_model, no ReLU"))
    assert not np.allclose(with_relu, without, atol=1e-2)  # from the same weights


# Time and memory of a training step -----------------------------------------------------------------------------------


@pytest.fixture
def cpu_step(experiment):
    return experiment("cpu_step")


def run_quickly(name, out, *arguments):
    """-> the JSON that the script writes, and what it prints"""
    command = [sys.executable, "-W", "error", BENCHMARKS / f"{name}.py", "--quick", "--out", out, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads((out / f"{name}.json").read_text(encoding="utf-8")), done.stdout


@pytest.mark.slow
def test_a_cell_of_cpu_step_has_a_column_for_every_rival(cpu_step, tmp_path):
    pytest.importorskip("torch")
    result, printed = run_quickly("cpu_step", tmp_path, "--models", "tiny", "--padding", "with", "--threads", "1")
    assert {"benchmark", "command", "repetitions", "warm_up", "seeds", "cells", "commit", "hardware"} <= result.keys()
    (cell,) = result["cells"]
    names = {cpu_step.OURS, *cpu_step.RIVALS} - {"compile"}
    assert cell["missing"].keys() == {"compile"}
    for what in ("seconds", "target_tokens_per_second", "page_faults", "last_loss", "alone", "our_memory_over_theirs"):
        assert cell[what].keys() == names, what
    ours, theirs = (cell["seconds"][name]["minimum"] for name in ("scratchformer", "pytorch"))
    assert cell["time_over_ours"]["minimum"]["pytorch"] == pytest.approx(theirs / ours, rel=1e-2)
    assert all(labels["minimum"] <= labels["median"] for labels in cell["seconds"].values())
    assert cell["padding_share"] == pytest.approx(0.27, abs=0.01)
    assert cell["threads_pinned"] == {"scratchformer": [1], "pytorch": 1}
    assert 0 < cell["share_of_sgemm_peak"] < 3  # 1, if nothing disturbed the peak
    row = printed.splitlines()[-1].split()
    assert row[:3] == ["tiny", "with", "1"] and row[6] == "-"  # the column of compile


def batch_of(cpu_step, *sizes, **options):
    """All pairs in one batch."""
    return cpu_step.micro_batches(cpu_step.pairs_of(*sizes, **options), 1)[0]


def test_what_a_step_multiplies_is_counted_right(cpu_step, monkeypatch):
    config = ModelConfig(vocab_size=40, N=2, d_model=12, d_ff=20, h=3, d_k=5, d_v=7)
    batch = batch_of(cpu_step, 6, 9, 3, config.vocab_size, seed=0)._replace(
        source_ids=batch_of(cpu_step, 6, 11, 4, config.vocab_size, seed=1).source_ids
    )
    matmul, counted = np.matmul, []

    def counting(a, b, out=None):
        product = matmul(a, b, out=out)
        counted.append(2 * product.size * a.shape[-1])
        return product

    monkeypatch.setattr(np, "matmul", counting)
    Transformer(config).loss_backward(batch.source_ids, batch.target_in_ids, batch.target_out_ids, 0.1)
    assert cpu_step.matmul_flops(config, batch) == sum(counted)


def test_a_batch_of_random_words_is_a_rectangle_of_known_padding(cpu_step):
    batch = batch_of(cpu_step, 128, 20, 9, vocab_size=2000, seed=1)
    for ids in (batch.source_ids, batch.target_out_ids):
        assert ids.shape == (128, 20) and np.mean(ids == PAD) == pytest.approx(0.275, abs=0.002)
        lengths = (ids != PAD).sum(axis=1)
        assert set(lengths) == set(range(9, 21)) and np.ptp(np.diff(lengths)) > 2  # all of them, in no order
        assert (ids[np.arange(128), lengths - 1] == EOS).all() and (ids == EOS).sum() == 128
        words, counts = np.unique(ids[ids > EOS], return_counts=True)
        assert words.min() == UNK + 1 and counts.max() > 100 and np.median(counts) <= 2
    difference = (batch.source_ids != PAD).sum(axis=1) - (batch.target_out_ids != PAD).sum(axis=1)
    assert 1 < difference.std() < 3  # alike, and not equal
    assert (batch.target_in_ids[:, 0] == BOS).all()
    assert np.array_equal(batch.source_ids, batch_of(cpu_step, 128, 20, 9, 2000, seed=1).source_ids)
    assert not np.array_equal(batch.source_ids, batch_of(cpu_step, 128, 20, 9, 2000, seed=2).source_ids)
    assert (batch_of(cpu_step, 3, 20, 20, 2000, seed=1).source_ids != PAD).all()


def test_our_memory_is_measured_without_pytorch():
    script = (
        "import sys, cpu_step\n"
        "print(cpu_step.measure_alone(cpu_step.Cell('tiny', 'with', 1, quick=True), cpu_step.OURS))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, cwd=BENCHMARKS)


def test_memory_is_compared_with_and_without_the_imports(cpu_step):
    alone = {"scratchformer": {"after_imports": 40, "peak": 100}, "pytorch": {"after_imports": 200, "peak": 400}}
    assert cpu_step.memory_ratios(alone)["pytorch"] == {"whole_process": 0.25, "beyond_imports": 0.3}


@pytest.fixture
def interrupted(cpu_step, monkeypatch, tmp_path):
    """interrupted(models, **options) -> the cells in the file after measuring, which small interrupts"""
    measured = {
        "seconds": {cpu_step.OURS: {"minimum": 1.0}},
        "page_faults": {cpu_step.OURS: 0},
        "missing": {},
        "threads_pinned": {"pytorch": 1, cpu_step.OURS: [1]},
    }
    alone = {"after_imports": 1, "peak": 2, "page_faults": 3}

    def in_own_process(cell, *more):
        if cell.model == "small":
            raise KeyboardInterrupt
        return alone if "--alone" in more else cell._asdict() | measured

    monkeypatch.setattr(cpu_step, "in_own_process", in_own_process)
    monkeypatch.setattr(cpu_step.importlib.metadata, "version", lambda name: "0")

    def measure(models, **options):
        with pytest.raises(KeyboardInterrupt):
            cpu_step.measure_all([cpu_step.Cell(model, "with", 1, True) for model in models], 2, tmp_path, **options)
        return json.loads((tmp_path / "cpu_step.json").read_text(encoding="utf-8"))["cells"]

    return measure


def test_an_interrupted_run_keeps_the_cells_it_has(cpu_step, interrupted):
    (cell,) = interrupted(["tiny", "small", "base"])
    assert cell["model"] == "tiny" and cell["alone"][cpu_step.OURS]["peak"] == 2
    assert {"repetitions", "date", "commit"} <= cell.keys()


def test_other_cells_are_kept_only_if_asked_for(interrupted):
    def models(cells):
        return [cell["model"] for cell in cells]

    assert models(interrupted(["base", "tiny", "small"], keep=True)) == ["base", "tiny"]  # there was no file yet
    assert models(interrupted(["tiny", "multi30k", "small"], keep=True)) == ["base", "tiny", "multi30k"]
    assert models(interrupted(["base", "small"])) == ["base"]


def test_what_does_not_compile_is_told_in_one_line(cpu_step):
    def step(batch):
        raise RuntimeError("no compiler found\n\nlook here, and there")

    assert cpu_step.failure(step, pairs=None) == "RuntimeError: no compiler found"
    assert cpu_step.failure(lambda batch: 1.0, pairs=None) == ""


def test_rivals_must_learn_the_same(cpu_step):
    first = {cpu_step.OURS: 9.5, "pytorch": 9.6, "bf16": 9.5}
    cpu_step.assert_learned_alike(first, {cpu_step.OURS: 8.0, "pytorch": 8.1})
    for last in ({"pytorch": 9.0}, {"pytorch": 7.5}, {"bf16": float("nan")}, {"pytorch": 8.1, "bf16": 9.5}):
        with pytest.raises(AssertionError, match=list(last)[-1]):
            cpu_step.assert_learned_alike(first, {cpu_step.OURS: 8.0, **last})
    with pytest.raises(AssertionError, match="nothing was learned"):
        cpu_step.assert_learned_alike(first, first)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--models", "tiny,huge"],
        ["--padding", "some"],
        ["--threads", "0"],
        ["--threads", "one"],
        ["--repetitions", "0"],
        ["--out", "no/such/directory"],
    ],
)
def test_cpu_step_refuses_bad_input_in_one_line(cpu_step, arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cpu_step.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cpu_step.main()
    assert stopped.value.code == 2
    usage, error = capsys.readouterr().err.split("cpu_step.py: error: ")
    assert arguments[0] in error and error.count("\n") == 1


# How cost grows -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cpu_scaling_has_a_row_for_every_axis(experiment, tmp_path):
    result, printed = run_quickly("cpu_scaling", tmp_path)
    assert {"command", "repetitions", "provenance", "results"} <= result.keys()
    rows = result["results"]
    assert [(row["subject"], row["axis"]) for row in rows] == [
        (name, axis) for name, subject in experiment("cpu_scaling").SUBJECTS.items() for axis in subject.axes
    ]
    for row in rows:
        assert len(row["sizes"]) == len(row["seconds"]) == len(row["bytes"]) == 3
        assert row["bytes"] == pytest.approx(row["counted_bytes"], rel=0.3)  # the predictions' arithmetic
        assert row["memory_exponent"]["measured"] == pytest.approx(row["memory_exponent"]["predicted"], abs=0.2)
        assert row["axis"] not in row["others"]
    assert printed.splitlines()[-1].split()[:2] == ["step", "B"]


def test_an_exponent_is_that_of_the_upper_half(experiment):
    exponent = experiment("cpu_scaling").exponent
    assert exponent([1, 2, 4, 8], [9, 9, 3 * 4**1.5, 3 * 8**1.5]) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "name, axis, table_1",
    [("attention", "T", 2), ("attention", "d_model", 1), ("feed-forward", "T", 1), ("feed-forward", "d_model", 2)],
)
def test_counted_operations_grow_as_table_1_says(experiment, name, axis, table_1):
    subject = experiment("cpu_scaling").SUBJECTS[name]
    values = subject.axes[axis]
    flops = [subject.flops(subject.others._replace(**{axis: value})) for value in values]
    assert experiment("cpu_scaling").exponent(values, flops) == table_1


def test_more_long_sentences_are_new_and_long_and_of_known_words(experiment):
    module = experiment("longer")
    splits = module.bundled.read_all()
    sentences = module.more_long_sentences(splits, 5)
    assert len({example.source for example in sentences}) == 5
    assert not {example.source for example in sentences} & {each.source for split in splits.values() for each in split}
    longest = max(module.bundled.length(example) for example in splits["train"])
    assert all(module.bundled.length(example) > longest for example in sentences)


def test_a_model_begins_where_it_is_told_and_afterwards_at_zero(experiment, small_config):
    module, ids = experiment("longer"), np.array([[7, 8, 9]])
    model = module.model_of(module.VARIANTS["sinusoidal"], small_config())
    before = model.forward(ids, ids)[0]
    with module.Starts(model) as starts:
        starts.at(9)
        assert np.abs(model.forward(ids, ids)[0] - before).max() > 1e-3
    assert (model.forward(ids, ids)[0] == before).all()


def test_losses_by_position_add_up_to_the_loss(experiment, monkeypatch):
    longer, random = experiment("longer"), np.random.default_rng(0)
    monkeypatch.setattr(longer, "EDGES", (0, 2, 5, 20))
    lengths = np.array([3, 9, 4, 6])
    lines = [" ".join(map(str, random.integers(5, 30, n))) for n in lengths]
    pairs = encode_pairs(
        lambda lines: [[int(word) for word in line.split()] for line in lines],
        Pairs(lines, lines[::-1], [1, 2, 3, 4], 0),
        20,
        64,
    )
    model = Transformer(ModelConfig(vocab_size=30, N=1, d_model=8, d_ff=8, h=2), seed=0, dtype="float64")
    tokens = [np.clip(lengths + 1 - start, 0, end - start).sum() for start, end in ((0, 2), (2, 5), (5, 20))]
    mean = (longer.losses_by_position(model, pairs) * tokens).sum() / sum(tokens)
    assert np.isclose(mean, validation_loss(model, pairs, 64))


def test_every_weight_belongs_to_one_group_that_is_warmed_up_alone(experiment, small_config):
    module, model = experiment("adam_and_warmup"), Transformer(small_config().model)
    sums = "none", "all", "attention", "all but values and output"
    groups = {which: module.marks(model, which).astype(int) for which in module.WARMED if which not in sums}
    assert (sum(groups.values()) == 1).all() and all(group.any() for group in groups.values())
    attention = groups["queries and keys"] + groups["values and output"]
    assert np.array_equal(module.marks(model, "attention"), attention == 1)
    assert np.array_equal(module.marks(model, "all but values and output"), groups["values and output"] == 0)
    assert module.marks(model, "all").all() and not module.marks(model, "none").any()


def test_adam_in_parts_is_adam_where_nothing_is_left_out(experiment, small_config):
    module, config = experiment("adam_and_warmup"), small_config()
    steps = {}
    for kind in "Adam", "one divisor for each array":
        model = Transformer(config.model)
        optimizer, before = module.Partly(model, config, kind), model.store.data.copy()
        model.store.grad[...] = 3  # of one size: one divisor is enough
        optimizer.step(0.01)
        steps[kind] = model.store.data - before
    assert np.allclose(*steps.values(), atol=1e-6) and np.allclose(steps["Adam"], -0.01, atol=1e-6)


@pytest.mark.slow
def test_beam_sizes_writes_what_is_recorded_of_it(tmp_path):
    subprocess.run(
        [sys.executable, "-W", "error", "benchmarks/beam_sizes.py", "--quick", "--out", tmp_path],
        check=True,
        cwd=BENCHMARKS.parent,
    )
    result, recorded = (
        json.loads((path / "beam_sizes.json").read_text(encoding="utf-8"))
        for path in (tmp_path, BENCHMARKS / "results")
    )
    assert layout(result | {"config": None}) == layout(recorded | {"config": None})
    settings = [[(row["beam"], row["alpha"]) for row in each["results"]] for each in (result, recorded)]
    assert settings[0] == settings[1] and len(set(settings[0])) == 13


def test_the_empty_translation_has_the_probability_of_its_end(experiment):
    beam_sizes = experiment("beam_sizes")
    translator = beam_sizes.load_run(BENCHMARKS.parent / "data/tiny_model", dtype="float64")
    source_ids = np.array([[7, 9, 11, EOS], [12, EOS, PAD, PAD]])
    logits = translator.model.forward(source_ids, np.full((2, 1), BOS))[0][:, 0]
    p = np.exp(logits)[:, EOS] / np.exp(logits).sum(axis=1)
    assert np.allclose(np.exp(beam_sizes.log_p_of_empty(translator, source_ids)), p, rtol=1e-9)
