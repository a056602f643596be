"""The task "antecedent": find the noun that "it" means. A text encoder reads a sentence and one of its nouns, and says
yes or no (two segments and a class, as in Devlin et al. 2019, section 4.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

import numpy as np

from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops, ops_of, using
from scratchformer.tasks.task import Evaluation, Task, share
from scratchformer.text import bundled
from scratchformer.text.bundled import Example, both_right, words
from scratchformer.text.masking import LabelledPairs, labelled_pairs
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.run import Trained
from scratchformer.training.trainer import Trainer, TrainingData

NO, YES = 1, 2
"""The classes."""

PAIRS_AT_ONCE = 256


def with_two_nouns(split: str) -> list[Example]:
    """The sentences of a split of the bundled corpus in which "it" could mean two nouns."""
    return [each for each in bundled.read(split) if each.coreference and each.coreference["rival"] is not None]


def pairs_of(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> LabelledPairs:
    """Pair each sentence with the noun that "it" means (yes) and with the other noun (no), both as "the animal"."""
    nouns = [
        f"the {words(example.source)[example.coreference[role]]}"  # type: ignore[index]
        for example in examples
        for role in ("antecedent", "rival")
    ]
    sentences = [example.source for example in examples for _ in range(2)]
    return labelled_pairs(tokenizer.encode, sentences, nouns, [YES, NO] * len(examples), max_length)


def is_right(model: Model, pairs: LabelledPairs, ops: tuple[Ops, ...] = ()) -> np.ndarray:
    """Compare the probability of yes for the two nouns of each of n sentences -> right or wrong, (n,) bool"""
    margins = []
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        batch = pairs.batch(np.arange(start, min(start + PAIRS_AT_ONCE, len(pairs))))
        with using(*ops):
            logits, _ = model.forward(*batch.inputs)  # (B, 1, 3)
            margins.append(ops_of(logits).on_host(logits)[:, 0, YES] - ops_of(logits).on_host(logits)[:, 0, NO])
    meant, other = np.concatenate(margins).astype(np.float64).reshape(-1, 2).T
    return meant > other


class AntecedentTask(Task):
    """From a sentence and a noun to yes or no."""

    score_name, unit = "accuracy", "pairs of a sentence and a noun"

    def read(self, config: Config) -> dict[str, list[Example]]:
        if config.data.names_text:
            raise UserError("data.task=antecedent reads the annotations of the bundled corpus, and no files")
        return {split: with_two_nouns(split) for split in ("train", "val")}

    def train_tokenizer(self, corpus: Any, config: Config) -> Tokenizer:
        """As for the masked language model: from all English sentences, which need no annotation."""
        return Tokenizer.train(bundled.read_text("train").source, config.model.vocab_size, masks=True)

    def encode(self, corpus: dict[str, list[Example]], tokenizer: Tokenizer, config: Config) -> TrainingData:
        train, val = (pairs_of(corpus[split], tokenizer, config.data.max_length) for split in ("train", "val"))
        return TrainingData(train, val)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """The share of the validation sentences whose noun is found, in percent."""
        assert isinstance(trainer.data.val, LabelledPairs)
        right = is_right(trainer.model, trainer.data.val, trainer.device.ops)  # so few that each rank reads them all
        return {"accuracy": 100 * float(right.mean())}

    def evaluate(self, trained: Trained, reference: Path | None = None) -> Evaluation:
        """Score the sentences of test with two nouns, and the minimal pairs of test_coreference.

        The two sentences of a minimal pair differ in one adjective, and "it" means another noun in each. So a model
        that looks at anything but the adjective and the nouns finds half of the nouns, and both of no pair.
        """
        test, coreference = with_two_nouns("test"), with_two_nouns("test_coreference")
        limit = trained.config.data.max_length
        on_test, on_coreference = (
            is_right(trained.model, pairs_of(each, trained.tokenizer, limit), trained.device.ops)
            for each in (test, coreference)
        )
        links = [each.coreference or {} for each in test]
        first = 100 * float(np.mean([link["antecedent"] < link["rival"] for link in links]))
        shares = {"test": on_test, "sentences": on_coreference, "pairs": both_right(on_coreference, coreference)}
        record: dict[str, Any] = {"n_test": len(test), "n_sentences": len(coreference), "first": first}
        record["last"] = 100 - first
        found = {}
        for name, right in shares.items():
            record[name], record[f"{name}_interval"] = percent, (low, high) = share(right)
            found[name] = f"{percent:.1f} %  (95 % interval {low:.1f} to {high:.1f}), {len(right)}"
        text = (
            f"test {found['test']} sentences\nminimal pairs {found['sentences']} sentences\n"
            f"both sentences of a pair {found['pairs']} pairs\n"
            f"always the first noun: test {first:.1f} %, the last {100 - first:.1f} %; "
            "minimal pairs 50.0 %, both sentences of a pair 0.0 %"
        )
        return Evaluation(record, text)
