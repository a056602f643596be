"""The task "parsing" (paper §6.3): from the words of a sentence to its constituency tree, written as symbols."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config, DataConfig
from scratchformer.decoding.translator import Translator
from scratchformer.decoding.tree_parser import TreeParser, TreeRules
from scratchformer.errors import UserError
from scratchformer.tasks.task import Corpus, Evaluation, Task
from scratchformer.text import bundled
from scratchformer.text.batches import EncodedPairs, encode_pairs
from scratchformer.text.bracket_score import BracketCounts, count_brackets, score_parses
from scratchformer.text.corpora import Pairs, find_file, require_distinct
from scratchformer.text.tokenizer import N_SPECIALS
from scratchformer.text.trees import Parse, Tree, cleaned, parsed_trees, read_trees, tags_first
from scratchformer.text.words import TokenizerPair, WordTokenizer
from scratchformer.training.run import Trained, translator_of
from scratchformer.training.trainer import Trainer, TrainingData


def read_split(data: DataConfig, split: str) -> list[Tree]:
    """The trees of a split: those of the file SPLIT.trees, plain or gzipped and cleaned, or of the bundled corpus."""
    if data.files:
        raise UserError("trees are read from a directory with train.trees and val.trees: give --data DIR")
    if not data.directory:
        return parsed_trees((example.tree for example in bundled.read(split)), f"the trees of {split}")
    return read_treebank(find_file(Path(data.directory), f"{split}.trees"))


def read_treebank(path: Path) -> list[Tree]:
    """The trees of a file, plain or gzipped, cleaned."""
    trees = [tree for tree in map(cleaned, read_trees(path)) if tree]
    if not trees:
        raise UserError(f"{path}: holds no trees")
    return trees


def as_pairs(trees: list[Tree]) -> Pairs:
    """Words and symbols, each sentence with a number for messages."""
    numbers = list(range(1, len(trees) + 1))
    return Pairs([" ".join(tree.words) for tree in trees], [" ".join(tree.symbols()) for tree in trees], numbers, 0)


class ParsingTask(Task):
    """From words to trees: each word and each symbol is one id, of a vocabulary for words and one for symbols."""

    score_name, unit, command = "F1", "trees", "translate"

    def read(self, config: Config) -> Corpus:
        directory = config.data.directory
        if directory:
            require_distinct((split, Path(directory) / f"{split}.trees") for split in ("train", "val"))
        return Corpus(read_split(config.data, "train"), read_split(config.data, "val"))

    def train_tokenizer(self, corpus: Corpus, config: Config) -> TokenizerPair:
        tags = {tag for tree in corpus.train for tag in tree.tags}
        phrases = {phrase.label for tree in corpus.train for phrase in tree.phrases()}
        if not phrases:
            raise UserError("the training trees have words with tags, but no phrase")
        if both := sorted(tags & phrases):
            raise UserError(
                f"the training trees have {both[0]} as a tag and as the label of a phrase: rename one of them"
            )
        words, symbols, _, _ = as_pairs(corpus.train)
        in_order, _ = tags_first(symbol for line in symbols for symbol in line.split())
        return TokenizerPair(WordTokenizer.train_words(words, config.model.vocab_size), WordTokenizer.of(in_order))

    def settled(self, config: Config, tokenizer: Any) -> Config:
        symbols = tokenizer.target.pieces(range(N_SPECIALS, tokenizer.target.vocab_size))
        sizes = {"vocab_size": tokenizer.source.vocab_size, "target_vocab_size": tokenizer.target.vocab_size}
        if config.model.n_tags:
            sizes["n_tags"] = tags_first(symbols)[1]
        return configs.with_settings(config, sizes)

    def encode(self, corpus: Corpus, tokenizer: Any, config: Config) -> TrainingData:
        symbols = {symbol for tree in corpus.train for symbol in tree.symbols()}
        if unknown := sorted(symbols - set(tokenizer.target.pieces(range(tokenizer.target.vocab_size)))):
            raise UserError(f"the training trees have {unknown[0]}, which the run's vocabulary lacks: train without it")

        def encoded(trees: list[Tree]) -> EncodedPairs:
            limits = config.data.max_length, config.training.tokens_per_batch
            return encode_pairs(tokenizer.encode, as_pairs(trees), *limits, tokenizer.target.encode)

        return TrainingData(encoded(corpus.train), encoded(corpus.val), corpus.val)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Labelled F1 of greedy parses of the validation trees, in percent, and the share that had to be repaired."""
        ranks, gold = trainer.ranks, trainer.data.val_text[trainer.ranks.rank :: trainer.ranks.size]
        assert isinstance(trainer.tokenizer, TokenizerPair)
        extra_length, rules = trainer.config.decoding.extra_length, TreeRules(trainer.tokenizer.target)
        where = trainer.threads, trainer.device
        translator = Translator(trainer.model, trainer.tokenizer, extra_length, *where, rules=rules)
        parses = TreeParser(translator).parse([tree.words for tree in gold])
        counts = np.array(BracketCounts.total(map(count_brackets, parses, gold)), dtype=float)
        ranks.all_reduce_inplace(counts)
        scores = BracketCounts(*map(int, counts)).scores()
        return {name: scores[name] for name in ("f1", "complete_match", "unparsable")}

    def evaluate(self, trained: Trained, reference: Path | None = None) -> Evaluation:
        """Score the trees of a file, or of the test set of the run's data, by labelled F1 as EVALB counts it."""
        test = read_treebank(reference) if reference else read_split(trained.config.data, "test")
        parses = model_parses(trained, test)
        scores = score_parses(parses, test)
        text = (
            "F1 {f1:.2f}, precision {precision:.2f}, recall {recall:.2f}, complete match {complete_match:.1f}, "
            "tags {tagging_accuracy:.1f}, unparsable {unparsable:.1f}\n"
            "in %, of {n_sentences:,} sentences, {n_errors} of them not counted; "
            "brackets by EVALB's rules (COLLINS.prm)"
        )
        record = scores | {"text_crc32": zlib.crc32("\n".join(map(str, test)).encode())}
        return Evaluation(record, text.format(**scores), [str(tree) for tree, _ in parses])


def model_parses(trained: Trained, test: Sequence[Tree], free: bool = False) -> list[Parse]:
    """Parse the words of trees with the model. free: it may write what is not a tree, to be repaired"""
    decoding, translator = trained.config.decoding, translator_of(trained)
    if free:
        translator.rules = None
    return TreeParser(translator).parse([tree.words for tree in test], decoding.beam, decoding.alpha)
