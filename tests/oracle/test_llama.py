"""Published weights of Llama's layout are, as a run of ours, the same model."""

import json
import struct
from functools import partial

import numpy as np
import pytest
import torch
from published import continued, llama, llama_weights
from safetensors.torch import load_file, save_file
from side_by_side import difference

from scratchformer.decoding.generation import Sampling, begin_text, generate
from scratchformer.training.run import load_model

TOLERANCE = 1e-4
"""Of `difference`, between logits in float32."""

SIZES = {"N": 2, "d_model": 24, "d_ff": 40, "h": 6, "h_kv": 2}
SPECIAL = ["<s>", "</s>", "<|im_start|>"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """tokenizer.json as the Hub serves it, but small; its text begins with <s>. Only to be read."""
    import tokenizers

    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator(["The merges are learned, and the words are merged. " * 9], trainer)
    learner.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    path = tmp_path_factory.mktemp("hub") / "tokenizer.json"
    learner.save(str(path))
    return path, learner


@pytest.fixture
def hub_directory(published, tmp_path):
    """hub_directory(model, dtype, files) -> what the Hub would serve for this model"""

    def make(theirs, dtype=torch.float32, files=1, **changes):
        directory = tmp_path / "model"
        directory.mkdir()
        (directory / "tokenizer.json").write_bytes(published[0].read_bytes())
        fields = {
            "model_type": "llama",
            "vocab_size": len(theirs["model.embed_tokens.weight"]),
            "hidden_size": SIZES["d_model"],
            "intermediate_size": SIZES["d_ff"],
            "num_hidden_layers": SIZES["N"],
            "num_attention_heads": SIZES["h"],
            "num_key_value_heads": SIZES["h_kv"],
            "rms_norm_eps": 1e-5,
            "rope_theta": 500.0,
            "rope_scaling": None,
            "max_position_embeddings": 256,
            "tie_word_embeddings": "lm_head.weight" not in theirs,
            "bos_token_id": 0,
            "eos_token_id": 1,
        }
        (directory / "config.json").write_text(json.dumps(fields | changes))
        tensors = {name: tensor.to(dtype) for name, tensor in theirs.items()}
        if files == 1:
            save_file(tensors, directory / "model.safetensors")
            return directory
        place = {name: f"model-{i % files}.safetensors" for i, name in enumerate(tensors)}
        for name in set(place.values()):
            save_file({each: tensors[each] for each in tensors if place[each] == name}, directory / name)
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": place}))
        return directory

    return make


def model_of(published, **changes):
    return llama_weights(published[1].get_vocab_size() + 5, **SIZES, **changes)


@pytest.mark.parametrize(
    "dtype, files, tied", [(torch.float32, 1, True), (torch.bfloat16, 1, False), (torch.float16, 3, True)]
)
def test_logits_and_greedy_continuations_are_those_of_the_twin(
    cli, published, hub_directory, tmp_path, dtype, files, tied
):
    theirs = {name: each.to(dtype).float() for name, each in model_of(published, tied=tied).items()}
    logits = partial(llama, theirs, SIZES["h"], SIZES["h_kv"], theta=500.0)
    assert cli("import", "--from", "llama", hub_directory(theirs, dtype, files), "--out", tmp_path / "run").code == 0
    ours = load_model(tmp_path / "run")
    prompt = begin_text(ours.tokenizer, "The merges <|im_start|>")
    their_prompt = [ours.tokenizer.theirs[i] for i in prompt]
    assert their_prompt[0] == 0 and SPECIAL.index("<|im_start|>") not in their_prompt  # a template is only text

    ids = np.random.default_rng(0).integers(1, ours.tokenizer.vocab_size, (3, 20))
    expected = logits(torch.as_tensor(np.array(ours.tokenizer.theirs)[ids])).numpy()[..., ours.tokenizer.theirs]
    assert difference(ours.model.forward(ids)[0], expected) < TOLERANCE
    found = [int(drawn) for drawn, in generate(ours.model, prompt, 120, Sampling(temperature=0))]
    written = continued(logits, their_prompt, 120)[len(their_prompt) :]
    n = min([len(found), *(i for i, each in enumerate(written) if each in (0, 1))])  # ours ends at EOS, writes no BOS
    assert [ours.tokenizer.theirs[i] for i in found[:n]] == written[:n]
    assert n > 100 and len(set(written)) > 5


PIECES = [" ", "t", "h", "e", "m", "r", "g", "s", " t", "he", " the", "er", "me", " m", " me", " mer", "ge", "ges"]


def test_a_file_of_llama2c_is_the_same_model(cli, tmp_path):
    """The layout of its export: seven integers, float32 arrays layer by layer, the coordinates 2i and 2i + 1 paired."""
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{i:02X}>" for i in range(256)), *PIECES]
    state, d_k = llama_weights(len(pieces), **SIZES), SIZES["d_model"] // SIZES["h"]

    def paired(weight):
        """Row i and row i + d_k / 2 of each head as rows 2i and 2i + 1."""
        return weight.unflatten(0, (-1, 2, d_k // 2)).transpose(1, 2).flatten(0, 2)

    def every(name, change=lambda weight: weight):
        return torch.stack([change(state[f"model.layers.{i}.{name}.weight"]) for i in range(SIZES["N"])])

    arrays = [
        state["model.embed_tokens.weight"],
        every("input_layernorm"),
        every("self_attn.q_proj", paired),
        every("self_attn.k_proj", paired),
        every("self_attn.v_proj"),
        every("self_attn.o_proj"),
        every("post_attention_layernorm"),
        every("mlp.gate_proj"),
        every("mlp.down_proj"),
        every("mlp.up_proj"),
        state["model.norm.weight"],
        torch.zeros(64, d_k),
    ]
    header = struct.pack("<7i", *(SIZES[name] for name in ("d_model", "d_ff", "N", "h", "h_kv")), len(pieces), 64)
    (tmp_path / "model.bin").write_bytes(header + b"".join(array.numpy().tobytes() for array in arrays))
    scored = [struct.pack("<fi", -float(i), len(piece)) + piece.encode() for i, piece in enumerate(pieces)]
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 9) + b"".join(scored))

    assert cli("import", "--from", "llama", tmp_path / "model.bin", "--out", tmp_path / "run").code == 0
    ours = load_model(tmp_path / "run")
    [ids] = ours.tokenizer.encode(["the merges, ж"])
    assert ours.tokenizer.pieces(ids) == ["▁the", "▁mer", "ges", "<0x2C>", "▁", "<0xD0>", "<0xB6>"]
    assert ours.tokenizer.decode([ids]) == ["the merges, ж"]
    ids = np.random.default_rng(0).integers(1, ours.tokenizer.vocab_size, (3, 20))
    their_ids = torch.as_tensor(np.array(ours.tokenizer.theirs)[ids])
    expected = llama(state, SIZES["h"], SIZES["h_kv"], their_ids).numpy()[..., ours.tokenizer.theirs]
    assert difference(ours.model.forward(ids)[0], expected) < TOLERANCE
    assert cli("generate", tmp_path / "run", "--prompt", "the", "--tokens", 5).out.startswith("the")


# What is refused ------------------------------------------------------------------------------------------------------

BAD_FIELDS = {
    "model_type is 'mistral'": {"model_type": "mistral"},
    "rope_scaling is {'factor': 8.0}": {"rope_scaling": {"factor": 8.0}},
    "hidden_size is None": {"hidden_size": None},
    "model.h=6 is not a multiple of model.h_kv=4": {"num_key_value_heads": 4},
    "mlp.gate_proj.weight has shape (40, 24); in a model of its sizes it has (48, 24)": {"intermediate_size": 48},
    "model.layers.2.input_layernorm.weight is missing": {"num_hidden_layers": 3},
    "pieces, EOS 1 and BOS 0, but the model has 20 rows": {"vocab_size": 20},
}
BAD_FILES = {
    "not JSON, or damaged": ("config.json", lambda path: path.write_text("{")),
    "not a published tokenizer": ("tokenizer.json", lambda path: path.write_text("{}")),
    "not a sound safetensors file": ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:100])),
    "No such file": ("model.safetensors", lambda path: path.unlink()),
    "is of type I32": (
        "model.safetensors",
        lambda path: save_file(load_file(path) | {"model.norm.weight": torch.zeros(24, dtype=torch.int32)}, path),
    ),
}


@pytest.mark.parametrize("complaint", [*BAD_FIELDS, *BAD_FILES])
def test_bad_settings_and_files_are_refused(refused, published, hub_directory, tmp_path, complaint):
    directory = hub_directory(model_of(published), **BAD_FIELDS.get(complaint, {}))
    if complaint in BAD_FILES:
        name, spoil = BAD_FILES[complaint]
        spoil(directory / name)
    said = refused("import", "--from", "llama", directory, "--out", tmp_path / "run")
    assert complaint in said and str(directory) in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content, complaint", [(b"abc", "not a file of llama2.c"), (struct.pack("<7i", 8, 8, 1, 2, 2, 9, 4), "28 bytes")]
)
def test_a_damaged_file_of_llama2c_is_refused(refused, tmp_path, content, complaint):
    (tmp_path / "model.bin").write_bytes(content)
    assert complaint in refused("import", "--from", "llama", tmp_path / "model.bin", "--out", tmp_path / "run")


def test_a_model_that_memory_cannot_hold_is_refused_before_it_is_read(
    refused, published, hub_directory, tmp_path, monkeypatch
):
    monkeypatch.setattr("scratchformer.nn.sizes.machine_memory_bytes", lambda: 10_000)
    said = refused("import", "--from", "llama", hub_directory(model_of(published)), "--out", tmp_path / "run")
    assert "not enough memory" in said and not (tmp_path / "run").exists()
