"""The whole model, training and search on a GPU, and on the strict arrays that stand in for one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import strict_array

from scratchformer.backends.cuda import device as module
from scratchformer.backends.cuda.kernels import KERNELS
from scratchformer.backends.device import Device
from scratchformer.config import ModelConfig
from scratchformer.decoding.generation import generate
from scratchformer.decoding.search import search
from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import random_arrays
from scratchformer.nn.gradient_cases import CASES
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.models import new_model
from scratchformer.nn.ops import Ops, ops_of, using
from scratchformer.nn.parameter import as_tuple
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks import start
from scratchformer.training import loop
from scratchformer.training.run import load_run

CPU = Device()
CONFIG = ModelConfig(vocab_size=40, N=2, d_model=16, d_ff=24, h=2, P_drop=0.2, relu_dropout=0.1)
KEY = DropoutKey(seed=1, step=2)
SOURCE = np.array([[5, 6, 7, 3, 2], [9, 2, 0, 0, 0], [4, 4, 8, 2, 0]])
TARGET_IN = np.array([[1, 8, 9, 4], [1, 5, 0, 0], [1, 11, 12, 0]])
TARGET_OUT = np.array([[8, 9, 4, 2], [5, 2, 0, 0], [11, 12, 2, 0]])
IMAGES = np.random.default_rng(0).uniform(size=(3, 8, 8))
BATCHES = {
    "encoder-decoder": ((SOURCE, TARGET_IN), TARGET_OUT),
    "decoder": ((TARGET_IN,), TARGET_OUT),
    "encoder": ((SOURCE, 1 * (SOURCE > 4)), SOURCE),
    "vision": ((IMAGES,), np.array([[2], [1], [3]])),
}
"""Architecture -> the inputs of the model, the targets."""
TOLERANCE = {"fp32": 1e-5, "tf32": 1e-2, "fp16": 6e-3, "bf16": 4e-2}
"""Relative error of a whole gradient. Measured over all variants and 8 seeds: at most 6e-7 in fp32, 1.8e-3 in tf32, or
4.5e-3 if a library cuts off the bits that tf32 has not, 2.8e-3 in fp16, 2e-2 in bf16."""

TOLERANCE_OF_RUNS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 5e-3, "bf16": 2e-2}
"""Relative error of each loss in a run of 12 steps. Measured over 6 seeds: at most 1.2e-6, 3.4e-3, 9e-4, 3.3e-3."""

VARIANTS = {
    "the paper's": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned"},
    "nothing tied": {"tied": "none"},
    "odd widths": {"d_k": 3, "d_v": 5},
    "no biases": {"attention_bias": False},
    "dropped weights": {"attention_dropout": 0.1},
    "told the next word": {"norm": "pre", "n_tags": 6},
    "GPT": {"architecture": "decoder", "norm": "pre", "positions": "learned", "feed_forward": "gelu"},
    "the block of 2026": {"d_k": 4, "h_kv": 1, "norm": "rms", "feed_forward": "swiglu", "positions": "rotary"},
    "ALiBi": {"architecture": "decoder", "norm": "pre", "positions": "alibi"},
    "BERT": {"architecture": "encoder", "positions": "learned", "feed_forward": "gelu"},
    "ViT": {"architecture": "vision", "n_classes": 3, "norm": "pre", "positions": "learned", "feed_forward": "gelu"},
}


class OddTokens:
    """Rules by which only odd ids are written; 1 is EOS."""

    def begin(self, source_length, longest):
        return None

    def after(self, state, token):
        return None

    def allowed(self, state):
        return np.arange(CONFIG.n_outputs) % 2 == 1


def gradient_of(config, device=CPU, seed=3, precision="fp32"):
    """-> loss, number of tokens, norm of the mean gradient, mean gradient, all on the host

    Except for fp32, hidden units are far from 0. Rounding could move one that is near 0 to the other side of ReLU, and
    change the gradient of a small model by several per cent.
    """
    model = new_model(config, seed=seed)
    for name, parameter in model.parameters().items():
        if name.endswith("feed_forward.inner.bias") and config.feed_forward == "relu" and precision != "fp32":
            parameter.data[::2], parameter.data[1::2] = 4, -4
    device.to_device(model)
    strict_array.waits.clear()
    with using(*device.ops):
        loss, n_tokens = batch_loss_backward(model, *BATCHES[config.architecture], 0.1, KEY)
        assert strict_array.waits == []
        ops, grad = ops_of(model.store.grad), model.store.grad
        squares = ops.divide_inplace(grad, n_tokens)  # this also divides by the loss scale
        return float(loss), n_tokens, np.sqrt(float(squares)), ops.on_host(grad)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_gradients_are_those_of_the_cpu(open_there, variant, precision):
    config = replace(CONFIG, **VARIANTS[variant])
    loss, n_tokens, norm, gradient = gradient_of(config, precision=precision)
    loss_there, n_there, norm_there, gradient_there = gradient_of(config, open_there(precision), precision=precision)
    tolerance = TOLERANCE[precision]
    assert n_there == n_tokens and loss_there == pytest.approx(loss, rel=tolerance)
    assert norm_there == pytest.approx(norm, rel=tolerance)
    assert np.linalg.norm(gradient_there - gradient) < tolerance * np.linalg.norm(gradient)


def test_every_kernel_is_used_in_training(open_strict):
    device = open_strict("fp16")
    for variant in ("the paper's", "dropped weights", "ViT"):
        gradient_of(replace(CONFIG, **VARIANTS[variant]), device)
    elsewhere = {"adam_inplace", "adapt_loss_scale", "log_sum_exp", "top_indices"}
    assert set(device.kernels.launches) == KERNELS.keys() - elsewhere


def test_the_reference_runs_on_the_device_unchanged(open_there):
    device = open_there()
    loss, _, _, gradient = gradient_of(CONFIG)
    model = new_model(CONFIG, seed=3)
    device.to_device(model)
    with using(Ops(device.xp)):
        loss_there, n_tokens = batch_loss_backward(model, (SOURCE, TARGET_IN), TARGET_OUT, 0.1, KEY)
    assert float(loss_there) == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(model.store.grad.get() / n_tokens, gradient, atol=1e-6)


def layer_gradients(case, xp=np):
    """-> y, the gradients of the inputs and those of the parameters, in float32 and on the host"""
    layer, inputs, _ = case.make()
    parameters = layer.parameters().values()
    for parameter in parameters:
        parameter.data, parameter.grad = (xp.asarray(each, "float32") for each in (parameter.data, parameter.grad))
    y, cache = layer.forward(*(xp.asarray(x, "float32") if isinstance(x, np.ndarray) else x for x in inputs))
    dy = xp.asarray(random_arrays(seed=0)(y.shape), "float32")
    results = [y, *as_tuple(layer.backward(dy, cache)), *(parameter.grad for parameter in parameters)]
    return [ops_of(each).on_host(each) for each in results]


OTHER_LAYERS = "Convolution SeparableConvolution RestrictedAttention RestrictedSelfAttention HeadGate GatedAttention"


@pytest.mark.parametrize("kind", OTHER_LAYERS.split())
def test_a_layer_outside_the_models_computes_there_what_it_computes_here(open_there, kind):
    device = open_there()
    for case in [case for case in CASES if case.layer == kind and case.description.endswith("dropout 0.0")]:
        with using(*device.ops):
            there = layer_gradients(case, device.xp)
        for found, expected in zip(there, layer_gradients(case), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=case.description)


def test_two_precisions_in_one_process_keep_apart(open_there):
    """Neither replaces the other, whichever was opened last."""
    exact, rounded = open_there("fp32"), open_there("tf32")
    alone = [gradient_of(CONFIG, open_there(precision))[3] for precision in ("fp32", "tf32")]
    assert np.array_equal(gradient_of(CONFIG, exact)[3], alone[0])
    assert np.array_equal(gradient_of(CONFIG, rounded)[3], alone[1])
    a = exact.xp.asarray(np.random.default_rng(0).standard_normal((256, 256), "float32"))
    products = [device.ops[-1].matmul(a, a).get() for device in (exact, rounded)]  # cuBLAS may not round small matrices
    assert not np.array_equal(*products)


@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-5), ("tf32", 1e-2), ("fp16", 1e-2)])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("n_tags, rules", [(0, None), (6, OddTokens())], ids=["free", "ruled"])
def test_the_search_finds_the_same_as_on_the_cpu(open_there, beam, precision, tolerance, n_tags, rules):
    model, there = (Transformer(replace(CONFIG, P_drop=0.0, n_tags=n_tags), seed=5) for _ in range(2))
    device = open_there(precision)
    device.to_device(there)
    for source in (SOURCE, SOURCE[:1]):
        here = search(model, source, beam, extra_length=4, nbest=beam, rules=rules)
        with using(*device.ops):
            found = search(there, source, beam, extra_length=4, nbest=beam, rules=rules)
        assert [[each.ids for each in nbest] for nbest in found] == [[each.ids for each in nbest] for nbest in here]
        scores, expected = ([[each.score for each in nbest] for nbest in of] for of in (found, here))
        np.testing.assert_allclose(scores, expected, atol=tolerance)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("window", [None, 6])
def test_a_language_model_writes_the_same_as_on_the_cpu(open_there, precision, window):
    """Two samples, of which a half is read again when the window is full. With fp16, draws may differ."""
    model, there = (new_model(replace(CONFIG, **VARIANTS["GPT"]), seed=5) for _ in range(2))
    device = open_there(precision)
    device.to_device(there)
    here = list(generate(model, [2, 7, 8], 20, seed=1, samples=2, window=window))
    with using(*device.ops):
        found = list(generate(there, [2, 7, 8], 20, seed=1, samples=2, window=window))
    assert len(found) == len(here) == 20 and (precision == "fp16" or np.array_equal(found, here))


def test_only_products_are_rounded_with_tf32(open_strict):
    """Gradients of biases, gamma and beta are sums, which are not rounded."""
    config = replace(CONFIG, N=1)
    exact, rounded = (gradient_of(config, open_strict(each), precision="tf32")[3] for each in ("fp32", "tf32"))
    assert 1e-5 < np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < 5e-3
    device = open_strict("tf32")
    dy, x = (strict_array.xp.asarray(np.full((3, 2), value, np.float32)) for value in (1 + 2**-20, 1))
    dW, db = strict_array.xp.zeros((2, 2), np.float32), strict_array.xp.zeros(2, np.float32)
    device.ops[-1].linear_backward(dy, x, strict_array.xp.ones((2, 2), np.float32), dW, db)
    assert dW.get().tolist() == [[3, 3]] * 2 and (db.get() > 3).all()


@pytest.mark.parametrize("P_drop", [0.1, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("shape", [(7, 112), (513,), (7, 3), (3, 40)])
def test_dropout_masks_equal_those_of_numpy_bit_for_bit(open_there, shape, P_drop):
    """For rows that begin at multiples of 16, and rows that do not."""
    device, key = open_there(), DropoutKey(2**63 + 5, 2**40, 3, 2**50 + 1)
    ones, zero, one = (device.xp.asarray(np.full(n, x, "f4")) for n, x in ((shape, 1), (shape[-1], 0), (shape[-1], 1)))
    ops = device.ops[-1]
    assert np.array_equal(ops.on_host(ops.dropout(ones, P_drop, key)[0]) > 0, key.keep(shape, P_drop))
    y, _ = ops.add_norm(0 * ones, ones, one, zero, 1e-6, P_drop, key)
    expected, _ = Ops(np).add_norm(
        np.zeros(shape, "f4"), np.ones(shape, "f4"), np.ones(shape[-1]), 0, 1e-6, P_drop, key
    )
    np.testing.assert_allclose(ops.on_host(y), expected, atol=1e-4)


def test_a_model_too_wide_for_the_kernels_is_refused(open_there):
    with pytest.raises(UserError, match="d_model=2049: the kernels normalise rows of at most 2048 numbers"):
        open_there().to_device(Transformer(replace(CONFIG, N=1, d_model=2049, d_k=1, d_v=1, h=1, d_ff=1)))


# Training -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def begin_there(begin, open_there, monkeypatch):
    """begin_there("name", precision="fp32", **changes) -> Trainer of a new run on the device"""

    def begin_(name="there", precision="fp32", **changes):
        monkeypatch.setattr(start, "open_device", lambda *_: open_there(precision))
        return begin(name, **changes)

    return begin_


def losses(run):
    return [entry["loss"] for entry in run.read_log("step")]


def test_a_step_never_makes_the_host_wait(begin, open_strict, monkeypatch):
    monkeypatch.setattr(start, "open_device", lambda *_: open_strict())
    trainer = begin(clip_norm=0.5)
    entries = []
    for index, indices in enumerate(trainer.plan.epoch(0)[:2]):
        entries.append(trainer.step(0, index, indices))
    assert strict_array.waits == []
    assert [trainer.finish(entry)["step"] for entry in entries] == [1, 2]
    assert strict_array.waits == ["float"] * 4  # loss and norm of each


GPT_RUN = {key: value for key, value in VARIANTS["GPT"].items() if key != "architecture"}  # the task decides it
GPT_RUN |= {"task": "language-model", "vocab_size": 300, "max_length": 16, "max_positions": 16, "tokens_per_batch": 64}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config, precision, tolerance",
    [*(({}, *each) for each in TOLERANCE_OF_RUNS.items()), (GPT_RUN | {"score_every": 4}, "fp32", 1e-4)],
)
def test_a_run_on_the_device_equals_a_run_on_the_cpu(begin, begin_there, config, precision, tolerance):
    """Of 12 steps: small differences grow, and after fifty those of the last bits are larger than the tolerance."""
    here, there = begin("here", **config), begin_there("there", precision, **config)
    assert loop.train(here) == loop.train(there) == "12 steps done"
    assert there.run.checkpoints.steps()[-1].name == here.run.checkpoints.steps()[-1].name
    np.testing.assert_allclose(losses(there.run), losses(here.run), rtol=tolerance)
    for event in ("validation", "step"):
        steps, expected = ([entry["step"] for entry in each.run.read_log(event)] for each in (there, here))
        assert steps == expected
    name = "bits per character"
    scores, expected = ([entry[name] for entry in each.run.read_log(name)] for each in (there, here))
    assert len(scores) == (3 if config else 0) and scores == pytest.approx(expected, rel=1e-4)
    assert all(entry["seconds"] > 0 for entry in there.run.read_log("step"))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(begin_there, precision, same_run):
    whole = begin_there("whole", precision)
    loop.train(whole)
    stopped = begin_there("stopped", precision, steps=7)
    loop.train(stopped)
    again, _ = start.resume(stopped.run, replace(stopped.config, training=replace(stopped.config.training, steps=12)))
    loop.train(again)
    again.run.checkpoints.of_step(7).unlink()  # saved at the stop
    same_run(again.run, whole.run)


@pytest.mark.slow
@pytest.mark.parametrize("precision, tolerance", TOLERANCE_OF_RUNS.items())
def test_a_checkpoint_can_move_between_cpu_and_device(begin, begin_there, monkeypatch, precision, tolerance):
    def go_on(trainer, steps):
        config = replace(trainer.config, training=replace(trainer.config.training, steps=steps))
        return start.resume(trainer.run, config)[0]

    plain = begin("plain")
    loop.train(plain)
    cpu = start.open_device
    trainer = begin_there("moving", precision, steps=4)
    there = start.open_device
    loop.train(trainer)
    for open_device, steps in ((cpu, 8), (there, 12)):
        monkeypatch.setattr(start, "open_device", open_device)
        trainer = go_on(trainer, steps)
        loop.train(trainer)
    np.testing.assert_allclose(losses(trainer.run), losses(plain.run), rtol=tolerance)
    assert load_run(trainer.run.path).translate(["the dog sees a cat"]) is not None


def test_validation_bleu_is_that_of_the_cpu(begin, begin_there):
    scores = [trainer.goal.score(trainer) for trainer in (begin("here"), begin_there("there"))]
    assert scores[0]["bleu"] == pytest.approx(scores[1]["bleu"], abs=0.2)


def test_weights_that_are_not_finite_end_the_run(begin_there):
    trainer = begin_there("bad", steps=6)
    trainer.model.store.data[7] = float("nan")
    trainer.model.store.refresh()
    with pytest.raises(UserError, match=r"step 1: the loss is nan, .*; there is no checkpoint yet"):
        loop.train(trainer)
    assert trainer.run.checkpoints.steps() == []


def test_a_step_that_overflows_with_fp16_is_skipped_and_the_scale_halves(begin_there):
    trainer = begin_there("overflow", "fp16", steps=3)
    trainer.device.restore([2.0**24, 0.0])
    before = trainer.model.store.data.get()
    entry = trainer.finish(trainer.step(0, 0, trainer.plan.epoch(0)[0]))
    assert entry["grad_norm"] is None and np.isfinite(entry["loss"])
    assert trainer.device.state() == [2.0**23, 0.0] and np.array_equal(trainer.model.store.data.get(), before)
    loop.train(trainer)
    norms = [entry["grad_norm"] for entry in trainer.run.read_log("step")]
    assert norms and "NaN" not in json.dumps(norms)


def test_the_loss_scale_halves_after_an_overflow_and_doubles_after_many_steps(open_there, monkeypatch):
    monkeypatch.setattr(module, "STEPS_TO_DOUBLE", 3)
    device, seen = open_there("fp16"), []
    device.restore([8.0, 0.0])
    for norm in (1, np.inf, 1, 1, np.nan, 1, 1, 1, 1):
        device.adapt_loss_scale(device.xp.asarray(norm, np.float64))
        seen.append(device.state())
    assert seen == [[8, 1], [4, 0], [4, 1], [4, 2], [2, 0], [2, 1], [2, 2], [4, 0], [4, 1]]


def test_gradients_that_overflow_whatever_the_scale_end_the_run(begin_there):
    trainer = begin_there("hopeless", "fp16")
    trainer.device.restore([2.0**-17, 0.0])
    trainer.model.store.grad[3] = float("inf")
    with pytest.raises(UserError, match="the gradient's norm inf"):
        trainer.finish(trainer.step(0, 0, trainer.plan.epoch(0)[0]))


def test_too_large_a_batch_is_reported_with_the_size_that_would_fit(begin_there, monkeypatch):
    trainer, whole = begin_there("large", tokens_per_batch=200, accumulation=1), Transformer.states

    def limited(model, source_ids, target_in_ids, rng):
        if len(source_ids) > 5:
            raise MemoryError("Out of memory allocating 1,000,000 bytes")
        return whole(model, source_ids, target_in_ids, rng)

    monkeypatch.setattr(Transformer, "states", limited)
    indices = max(trainer.plan.epoch(0), key=len)
    batch = trainer.plan.micro_batches(indices)[0]
    (n, S), T = batch.inputs[0].shape, batch.targets.shape[1]
    fits = n
    while fits > 5:
        fits //= 2
    with pytest.raises(UserError) as caught:
        trainer.step(0, 0, indices)
    assert str(caught.value) == (
        f"step 1: not enough memory for {n} sentence pairs of up to {max(S, T)} tokens "
        f"(training.tokens_per_batch=200); {fits * max(S, T)} would fit"
    )
    monkeypatch.setattr(Transformer, "states", lambda *_, rng: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(UserError, match="; not one would fit$"):
        trainer.step(0, 0, indices)
