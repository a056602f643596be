"""Weights under GPT-2's names are, as a run of ours, the same model."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from published import continued, gpt2, gpt2_weights
from safetensors.numpy import save_file
from side_by_side import difference

from scratchformer import config as configs
from scratchformer.decoding.generation import Sampling, generate
from scratchformer.text.tokenizer import BOS, EOS, N_SPECIALS
from scratchformer.training.run import RunDirectory, load_model

TOLERANCE = 1e-4
"""Of `difference`, between logits in float32."""

POSITIONS = 30


@pytest.fixture(scope="module")
def theirs(byte_level_files):
    vocab_size = len(json.loads(byte_level_files[0].read_bytes()))
    weights = gpt2_weights(vocab_size, POSITIONS, N=2, d_model=128, d_ff=96)
    weights["wpe.weight"] *= 10  # so that what it writes changes with the position
    return weights


@pytest.fixture
def imported(cli, byte_level_files, tmp_path):
    """imported(tensors, *options) -> the run with these weights"""

    def call(tensors, *options):
        path, run = tmp_path / "model.safetensors", tmp_path / "run"
        save_file({name: tensor.numpy() for name, tensor in tensors.items()}, path)
        vocab, merges = byte_level_files
        command = ("import", "--from", "gpt2", path, "--vocab", vocab, "--merges", merges, "--out", run)
        assert cli(*command, *options).code == 0
        return run

    return call


def as_published(tensors):
    """With the attention's constants, as in the file of OpenAI's smallest model."""
    mask = torch.ones(1, 1, POSITIONS, POSITIONS).tril()
    return tensors | {f"h.{i}.attn.bias": mask for i in range(2)}


def as_saved_with_head(tensors):
    """With the prefix of a model that has a head, and the head."""
    prefixed = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
    return prefixed | {"lm_head.weight": tensors["wte.weight"]}


@pytest.mark.parametrize("stored", [as_published, as_saved_with_head])
def test_logits_and_greedy_continuations_are_those_of_the_twin(theirs, imported, stored):
    ours = load_model(imported(stored(theirs)))
    random, vocab_size = np.random.default_rng(0), len(theirs["wte.weight"])
    ids = random.integers(0, vocab_size, (3, POSITIONS))
    expected = gpt2(theirs, 2, torch.as_tensor(ids)).numpy()
    ours_ids = np.where(ids == vocab_size - 1, BOS, ids + N_SPECIALS)
    logits, _ = ours.model.forward(ours_ids)
    assert difference(logits[..., N_SPECIALS:], expected[..., :-1]) < TOLERANCE
    for special in range(N_SPECIALS):  # all are <|endoftext|>
        assert difference(logits[..., special], expected[..., -1]) < TOLERANCE

    [prompt] = ours.tokenizer.encode(["The merges are learned"])
    found = [int(drawn) for drawn, in generate(ours.model, prompt, 12, Sampling(temperature=0))]
    written = continued(partial(gpt2, theirs, 2), [i - N_SPECIALS for i in prompt], 12)[len(prompt) :]
    assert [i - N_SPECIALS for i in found] == written and EOS not in found
    assert len(set(written)) > 5  # it has something to say


def test_half_precision_and_another_number_of_heads(theirs, imported):
    weights = gpt2_weights(len(theirs["wte.weight"]), POSITIONS, N=1, d_model=12, d_ff=20)
    halves = {name: weight.half() for name, weight in weights.items()}
    ours = load_model(imported(halves, "--heads", 3)).model
    ids = np.random.default_rng(0).integers(4, 400, (2, 9))
    expected = gpt2({name: half.float() for name, half in halves.items()}, 3, torch.as_tensor(ids - N_SPECIALS)).numpy()
    assert difference(ours.forward(ids)[0][..., N_SPECIALS:], expected[..., :-1]) < TOLERANCE


def test_an_imported_run_writes_and_is_scored_as_the_twin(theirs, imported, cli, tmp_path):
    run, text = imported(theirs), tmp_path / "text"
    written = cli("generate", run, "--prompt", "The merges", "--tokens", 8, "--temperature", 0)
    tokenizer = load_model(run).tokenizer
    [prompt] = tokenizer.encode(["The merges"])
    expected = continued(partial(gpt2, theirs, 2), [i - N_SPECIALS for i in prompt], 8)
    assert written.out == tokenizer.decode([[i + N_SPECIALS for i in expected]])[0] + "\n"

    text.write_text("We merge pairs.\n" * 10, encoding="utf-8")  # the last line validates
    config = configs.load(run / "config.toml")
    RunDirectory(run).write_config(configs.with_settings(config, {"data.text": [str(text)]}))
    found = json.loads(cli("evaluate", run, "--json").out)
    [ids] = tokenizer.encode(["We merge pairs.\n"])
    end = len(theirs["wte.weight"]) - 1
    ids = torch.tensor([end, *(i - N_SPECIALS for i in ids), end])
    bits = torch.nn.functional.cross_entropy(gpt2(theirs, 2, ids[None, :-1])[0], ids[1:], reduction="sum") / math.log(2)
    assert found["bits_per_character"] == pytest.approx(bits.item() / len("We merge pairs.\n"), rel=TOLERANCE)
