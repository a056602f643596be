"""Results of NumPy, written into files for the tests of the JavaScript engine."""

import json
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.decoding.search import search
from scratchformer.explorer.model_data import describe_tokenizer, layout
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, enumerate_named
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, EOS, PAD

SMALL_MODELS = {
    "post-norm": {"N": 2, "d_model": 8, "h": 2, "d_k": 3, "d_v": 5},
    "pre-norm": {"N": 2, "d_model": 8, "h": 2, "d_k": 5, "d_v": 3, "norm": "pre", "tied": "target"},
    "untied, learned positions, no biases": (
        {"N": 1, "d_model": 9, "h": 3, "tied": "none", "attention_bias": False}
        | {"positions": "learned", "max_positions": 9}
    ),
    "one head, pre-norm, learned positions": (
        {"N": 3, "d_model": 6, "h": 1, "d_k": 2, "norm": "pre", "ln_eps": 0.1}
        | {"positions": "learned", "max_positions": 8}
    ),
}
V = 11


def write(path, data, arrays=None):
    """A JSON file and, with `arrays`, a binary file beside it, whose layout the JSON file has as `arrays`."""
    if arrays is not None:
        arrays = {name: np.asarray(array, "<f4") for name, array in arrays.items()}
        path.with_suffix(".bin").write_bytes(b"".join(array.tobytes() for array in arrays.values()))
        data = {**data, "arrays": layout(arrays)}
    path.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")


def small_model(seed, **changes):
    """A random model of 11 words. Biases and norms are random too, which they are not at the start of a training."""
    model = Transformer(ModelConfig(**{"vocab_size": V, "d_ff": 7, **changes}), seed)
    model.store.data += np.random.default_rng(seed).normal(0, 0.2, model.store.data.size).astype("float32")
    return model


def write_model(folder, name, model, pieces):
    views = model.store.named_views(model.store.data)
    description = {"config": asdict(model.config), "tokenizer": {"pieces": pieces}}
    write(folder / f"{name}.model.json", {"description": {**description, "parameters": layout(views)}}, views)


# One pass -------------------------------------------------------------------------------------------------------------


def write_pass(path, model_name, model, source_ids, target_in_ids, position, token, removed=()):
    """Everything that a forward and a backward pass compute; the loss is that of one token at one position.

    removed  heads as (kind, layer, head); their output is removed by zeros in W_O
    """
    target = np.full((1, len(target_in_ids)), PAD)
    target[0, position] = token
    with without(model, removed), listening(model) as heard:
        logits, cache = model.forward(np.array([source_ids]), np.array([target_in_ids]))
        weights = attention_weights(cache)
        loss, _, dlogits = cross_entropy(logits, target)
        model.backward(dlogits, cache)
    arrays = {}
    for stage, value, gradient in stages(model.config, heard):
        arrays[f"value {stage}"], arrays[f"gradient {stage}"] = value[0], gradient[0]
    for kind, layer, _ in removed:  # ours are not zeros: they are multiplied by zeros
        stage = f"decoder.{layer}.cross.heads" if kind == "cross" else f"{kind}.{layer}.self.heads"
        arrays = {name: array for name, array in arrays.items() if name.split()[1] != stage}
    N = model.config.N
    kinds = [f"encoder.{n}" for n in range(N)] + [f"{kind}.{n}" for n in range(N) for kind in ("decoder", "cross")]
    arrays |= {f"attention {kind}": array[0] for kind, array in zip(kinds, weights)}
    names = [f"{kind}.{layer}.{head}" for kind, layer, head in removed]
    data = {"model": model_name, "sourceIds": source_ids, "targetInIds": target_in_ids, "removed": names}
    write(path, data | {"position": position, "token": token, "loss": float(loss)}, arrays)


@contextmanager
def without(model, removed):
    """Zeros in the rows of W_O that read these heads."""
    saved = model.store.data.copy()
    for kind, n, head in removed:
        layer = (model.encoder if kind == "encoder" else model.decoder).layers[n]
        attention = (layer.cross_attention if kind == "cross" else layer.self_attention).sublayer
        attention.output.weight.data[head * attention.d_v : (head + 1) * attention.d_v] = 0
    yield
    model.store.data[...] = saved


@contextmanager
def listening(model):
    """Hears what goes into and out of every layer: ("x" | "y" | "dy" | "dx", path of the layer) -> array"""
    heard, layers = {}, list(layers_of(model))

    def listen(path, layer, forward, backward):
        def forward_heard(x, *others, **options):
            y, cache = forward(x, *others, **options)
            heard["x", path], heard["y", path] = x, y
            return y, cache

        def backward_heard(dy, cache):
            heard["dy", path], heard["dx", path] = dy, backward(dy, cache)
            return heard["dx", path]

        layer.forward, layer.backward = forward_heard, backward_heard

    for path, layer in layers:
        listen(path, layer, layer.forward, layer.backward)
    yield heard
    for _, layer in layers:
        del layer.forward, layer.backward


def write_roads(path, model_name, model, source_ids, other_ids, place, before):
    """The distribution after `before` where only some rows of the decoder read another memory: that of the source, with
    the vector of `other_ids` at a place."""
    memory, other = (model.encode(np.array([ids]))[0] for ids in (source_ids, other_ids))
    changed, T, arrays = memory.copy(), len(before), {}
    changed[0, place] = other[0, place]

    def read_by(rows, forward):
        def mixed(x, memory, *others, **options):
            y, cache = forward(x, memory, *others, **options)
            y[:, rows] = forward(x, changed, *others, **options)[0][:, rows]
            return y, cache

        return mixed

    attentions = [layer.cross_attention.sublayer for layer in model.decoder.layers]
    for name, rows in {"none": [], "earlier": [*range(T - 1)], "own": [T - 1], "all": [*range(T)]}.items():
        for attention in attentions:
            attention.forward = read_by(rows, attention.forward)
        logits = model.forward(np.array([source_ids]), np.array([before]))[0][0, -1].astype("float64")
        arrays[name] = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        for attention in attentions:
            del attention.forward
    data = {"model": model_name, "sourceIds": source_ids, "otherIds": other_ids, "place": place, "before": before}
    write(path, data, arrays)


def layers_of(layer, path=""):
    for name, value in list(vars(layer).items()):
        for part, item in enumerate_named(path + name, value):
            if isinstance(item, Layer):
                yield part, item
                yield from layers_of(item, f"{part}.")


def stages(config, heard):
    """The engine's name of each stage, its value (1, positions, width) and the gradient, in the order of the engine."""

    def out(stage, path):
        return stage, heard["y", path], heard["dy", path]

    def into(stage, path):
        return stage, heard["x", path], heard["dx", path]

    def parts(stage, path, names, widths):
        """Several things that NumPy computes as one."""
        cuts = np.cumsum([config.h * width for width in widths])[:-1]
        for name, value, gradient in zip(names, *(np.split(heard[what, path], cuts, axis=-1) for what in ("y", "dy"))):
            yield f"{stage}.{name}", value, gradient

    d_k, d_v = config.d_k, config.d_v
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        yield out(f"{side}.embedding", f"{side}_embedding")
        yield out(f"{side}.positions", f"{side}_positions")
        sublayers = {"self": "self_attention", "cross": "cross_attention", "ff": "feed_forward"}
        if side == "source":
            del sublayers["cross"]
        for n in range(config.N):
            for name, sublayer in sublayers.items():
                stage, path = f"{stack}.{n}.{name}", f"{stack}.layers.{n}.{sublayer}"
                if config.norm == "pre":
                    yield out(f"{stage}.norm", f"{path}.norm")
                if name == "self":
                    yield from parts(stage, f"{path}.sublayer.qkv", "qkv", (d_k, d_k, d_v))
                if name == "cross":
                    yield from parts(stage, f"{path}.sublayer.q", "q", (d_k,))
                    yield from parts(stage, f"{path}.sublayer.kv", "kv", (d_k, d_v))
                if name == "ff":
                    yield into(f"{stage}.hidden", f"{path}.sublayer.outer")
                else:
                    yield into(f"{stage}.heads", f"{path}.sublayer.output")
                yield out(f"{stage}.update", f"{path}.sublayer")
                yield out(f"{stage}.out", path)
        if config.norm == "pre":
            yield out(f"{stack}.out", f"{stack}.final_norm")
    yield out("logits", "unembedding")


# Everything for one run of node ---------------------------------------------------------------------------------------


def write_small_models(folder, n_sources):
    """Random models of every kind: a pass, the same with heads removed, and searches."""
    for seed, (name, changes) in enumerate(SMALL_MODELS.items()):
        model, rng = small_model(seed, **changes), np.random.default_rng(seed)
        write_model(folder, name, model, [f"word {id_}" for id_ in range(V)])
        source, target = [*rng.integers(EOS + 1, V, 5).tolist(), EOS], [BOS, *rng.integers(EOS + 1, V, 4).tolist()]
        write_pass(folder / f"{name}.pass.json", name, model, source, target, 3, 5)
        write_roads(folder / f"{name}.roads.json", name, model, source, [*reversed(source[:-1]), EOS], 1, target)
        layer, head = model.config.N - 1, model.config.h - 1
        for kind in ("encoder", "decoder", "cross"):
            path, removed = folder / f"{name} without {kind}.pass.json", [(kind, layer, head)]
            write_pass(path, name, model, source, target, 2, 4, removed)
        pairs = [
            [[*rng.integers(EOS + 1, V, n).tolist(), EOS] for n in lengths] for lengths in ((4, 6), (3, 2), (5, 5))
        ]
        write_training(folder, name, model, pairs, 0.01)
        searches = []
        for _ in range(n_sources):
            source = [*rng.integers(EOS + 1, V, rng.integers(0, 5)).tolist(), EOS]
            for beam, alpha in ((1, 0.6), (2, 0), (4, 0.6), (5, 3)):
                extra_length = int(rng.integers(0, 12))
                [[best]] = search(model, np.array([source]), beam, alpha, extra_length)
                options = {"beam": beam, "alpha": alpha, "extraLength": extra_length}
                searches.append({"sourceIds": source, "options": options, "best": best._asdict()})
        write(folder / f"{name}.searches.json", {"model": name, "searches": searches})


def write_training(folder, name, model, pairs, learning_rate):
    """Steps of Adam in float64, one pair of sentences each: the losses, the first gradients, the last weights.

    The gradients are those of the mean loss of the tokens. Both lie in the order of the model's file.
    """
    double, losses = Transformer(model.config, 0, "float64"), []
    double.store.data[...] = model.store.data
    adam = Adam(double)
    for step, (source, target) in enumerate(pairs):
        double.store.grad[...] = 0
        logits, cache = double.forward(np.array([source]), np.array([[BOS, *target[:-1]]]))
        loss_sum, n_tokens, dlogits = cross_entropy(logits, np.array([target]))
        double.backward(dlogits / n_tokens, cache)
        losses.append(float(loss_sum / n_tokens))
        if step == 0:
            first = double.store.named_views(double.store.grad.copy())
        adam.step(learning_rate)
    last = double.store.named_views(double.store.data)
    arrays = {f"{what} {path}": array for what, views in (("d", first), ("w", last)) for path, array in views.items()}
    data = {"model": name, "pairs": pairs, "learningRate": learning_rate, "losses": losses}
    write(folder / f"{name}.training.json", data, arrays)


def write_trained_model(folder, name, translator, pairs):
    """The model of a run, and a pass for each of the sentence pairs."""
    model, tokenizer = translator.model, translator.tokenizer
    write_model(folder, name, model, tokenizer.pieces(range(tokenizer.vocab_size)))
    for number, (source, target) in enumerate(map(tokenizer.encode, map(list, pairs))):
        position, path = len(target) // 2, folder / f"{name} {number}.pass.json"
        write_pass(path, name, model, [*source, EOS], [BOS, *target], position, target[position])


def write_translations(folder, name, model_name, translator, sentences, settings):
    """Translations of the sentences, for each beam and alpha of `settings`. The tokenizer has the model's name."""
    found = []
    for beam, alpha in settings:
        for text, [best] in zip(sentences, translator.stream(sentences, beam, alpha)):
            options = {"beam": beam, "alpha": alpha, "extraLength": translator.extra_length}
            found.append({"text": text, "options": options, "best": best._asdict()})
    write(folder / f"{name}.translations.json", {"model": model_name, "translations": found})


def write_tokenizer(folder, name, tokenizer, texts, n_random):
    """Ids of the texts and their text again, and the text of random ids."""
    rng = np.random.default_rng(0)
    encoded = tokenizer.encode(texts)
    sequences = rng.integers(0, tokenizer.vocab_size, (n_random, 8)).tolist()
    for ids in sequences[::2]:
        ids[:4] = rng.integers(0, min(tokenizer.vocab_size, 260), 4).tolist()  # more special pieces and bytes
    data = {
        "description": describe_tokenizer(tokenizer, folder),
        "encoded": list(zip(texts, encoded, tokenizer.decode(encoded))),
        "decoded": list(zip(sequences, tokenizer.decode(sequences))),
        "pieces": tokenizer.pieces(range(tokenizer.vocab_size)),
    }
    write(folder / f"{name}.tokenizer.json", data)
