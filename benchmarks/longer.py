"""Do positions carry over to sentences longer than those of training?

    python benchmarks/longer.py [--quick] [--out DIR]

A small model is trained on the generated sentences with each kind of positions, and translates test_long, whose
sentences have more words than any of training. Two more runs with sinusoids ask for the reason: in one, each batch
begins at another position; in the other, some long sentences are among those of training.
"""

import random
from typing import Any, NamedTuple

import numpy as np
from harness import number, rounded, spread
from small_training import Part, adam_of, add_gradient, batches, conduct, schedule_of

import grammar
from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import Corpus, encode_corpus, train_tokenizer
from scratchformer.text import bundled
from scratchformer.text.batches import EncodedPairs, batches_in_order, encode_pairs
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.trainer import TrainingData
from scratchformer.training.validation import validation_loss
from support.positions import IN_ATTENTION, Shifted, give_positions

EXPERIMENT = {
    "training.steps": 600,
    "training.tokens_per_batch": 512,
    "training.accumulation": 1,
    "training.warmup": 200,
    "training.lr_factor": 0.7,
    "model.max_positions": 128,
    "data.max_length": 128,
}
QUICK = {"model.d_model": 32, "model.d_ff": 64, "training.steps": 4}
MANY_LONG = 1000  # of 21,000 sentences then
LATEST_START = 64
SHIFTS = (0, 5, 20, 50)
EDGES = (0, 10, 20, 30, 40, 128)  # of ranges of target positions
TOKENS = 2048  # of a batch, when testing
TRANSLATED = 60  # sentences of each test set


class Variant(NamedTuple):
    """kind: of positions; random_start: every batch begins at a position of its own; long: train on long ones, too"""

    kind: str
    random_start: bool = False
    long: bool = False


VARIANTS = {
    "learned": Variant("learned"),
    "sinusoidal": Variant("sinusoidal"),
    "alibi": Variant("alibi"),
    "rotary": Variant("rotary"),
    "sinusoidal, random start": Variant("sinusoidal", random_start=True),
    "sinusoidal, long ones too": Variant("sinusoidal", long=True),
}


class Text(NamedTuple):
    """train: ordinary text, and text with long sentences; test: name -> ids, and the sentences themselves"""

    tokenizer: Tokenizer
    train: dict[bool, TrainingData]
    test: dict[str, EncodedPairs]
    sentences: dict[str, Pairs]


def read_text(config: Config) -> Text:
    splits, val = {split: bundled.read(split) for split in bundled.SPLITS}, bundled.read_text("val")
    ordinary = Corpus(bundled.read_text("train"), val)
    examples = [*splits["train"], *more_long_sentences(splits, MANY_LONG)]
    sides = [each.source for each in examples], [each.target for each in examples]
    with_long = Corpus(Pairs(*sides, list(range(1, len(examples) + 1)), 0), val)
    tokenizer = train_tokenizer(ordinary, config)
    sentences = {name: bundled.read_text(name) for name in ("test", "test_long")}
    sizes = config.data.max_length, config.training.tokens_per_batch
    test = {name: encode_pairs(tokenizer.encode, pairs, *sizes) for name, pairs in sentences.items()}
    train = {long: encode_corpus(text, tokenizer, config) for long, text in ((False, ordinary), (True, with_long))}
    return Text(tokenizer, train, test, sentences)


def more_long_sentences(splits: dict[str, list[bundled.Example]], count: int) -> list[bundled.Example]:
    """Made as test_long is, of words that training has, and none of them in any split."""
    lexicon = grammar.read_lexicon()
    corpus = grammar.Corpus(lexicon, random.Random(1), grammar.hold_out(lexicon, random.Random(grammar.SEED)))
    everything = [example for split in splits.values() for example in split]
    corpus.sources = {example.source for example in everything}
    corpus.targets = {example.target for example in everything}
    corpus.known = {
        form
        for example in splits["train"]
        for form in corpus.forms(bundled.words(example.source), bundled.words(example.target))
    }
    return corpus.drawn(count, lambda: "long", grammar.MAX_WORDS_LONG, grammar.MAX_WORDS + 1)


def model_of(variant: Variant, config: Config) -> Transformer:
    learned = {"model.positions": "learned"} if variant.kind == "learned" else {}
    model = Transformer(configs.with_settings(config, learned).model, config.training.seed)
    if variant.kind in IN_ATTENTION:
        give_positions(model, variant.kind)
    return model


def run(variant: Variant, text: Text, config: Config) -> dict[str, Any]:
    model, draw = model_of(variant, config), np.random.default_rng(config.training.seed)
    optimizer, schedule = adam_of(model, config), schedule_of(config)
    usual = model.source_positions, model.target_positions

    def begin_at(first: int) -> None:
        model.source_positions, model.target_positions = (Shifted(positions, first) for positions in usual)

    begin_at(0)
    for step, batch in zip(range(1, config.training.steps + 1), batches(text.train[variant.long], config)):
        if variant.random_start:
            begin_at(int(draw.integers(LATEST_START)))
        add_gradient(model, batch, config, step)
        optimizer.step(schedule(step))
    shifted = []
    for first in SHIFTS[:1] if variant.kind in IN_ATTENTION else SHIFTS:  # there, only distances count
        begin_at(first)
        shifted.append(number(validation_loss(model, text.test["test"], TOKENS)))
    model.source_positions, model.target_positions = usual
    bleu = {}
    for name, pairs in text.sentences.items():
        translations = Translator(model, text.tokenizer).translate(pairs.source[:TRANSLATED], beam=1)
        bleu[name] = corpus_scores(translations, pairs.target[:TRANSLATED]).bleu
    test_long = number(validation_loss(model, text.test["test_long"], TOKENS))
    found = {"seed": config.training.seed, "test": shifted[0], "test_long": test_long, "test_shifted": shifted}
    print(variant, found, flush=True)
    by_position = rounded(losses_by_position(model, text.test["test_long"]))
    return found | {"test_long_by_position": by_position, "bleu": rounded(bleu)}


def losses_by_position(model: Transformer, pairs: EncodedPairs) -> np.ndarray:
    """In nats per target token, for the positions from each of EDGES to the next. (ranges,)"""
    sums = np.zeros((2, len(EDGES) - 1))  # of losses; of tokens
    for batch in batches_in_order(pairs, TOKENS):
        logits, _ = model.forward(*batch.inputs)  # (B, T, V)
        for i, (start, end) in enumerate(zip(EDGES, EDGES[1:])):
            sums[:, i] += cross_entropy(logits[:, start:end], batch.targets[:, start:end])[:2]
    return sums[0] / sums[1]


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    text, results = read_text(config), []
    for name, variant in VARIANTS.items():
        runs = [run(variant, text, configs.with_settings(config, {"training.seed": seed})) for seed in seeds]
        losses = {split: spread(each[split] for each in runs) for split in ("test", "test_long")}
        results.append({"variant": name, **losses, "runs": runs})
    longest = {
        "longest_in_training": int(text.train[False].train.lengths.max()),
        "longest_in_test_long": int(text.test["test_long"].lengths.max()),
    }
    return {"shifts": SHIFTS, "edges": EDGES, **longest, "results": results}


if __name__ == "__main__":
    conduct(__doc__, {"longer": Part(EXPERIMENT, QUICK, (0, 1), measure)})
