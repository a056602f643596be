"""All tasks that a model can be trained for, by the name that `data.task` gives them."""

from __future__ import annotations

from scratchformer.config import Config
from scratchformer.training.task import Task
from scratchformer.training.task_antecedent import Antecedent
from scratchformer.training.task_digits import Digits
from scratchformer.training.task_language_model import NextToken
from scratchformer.training.task_masked_language_model import MaskedLanguageModel
from scratchformer.training.task_parsing import Parsing
from scratchformer.training.task_translation import Translation

TASKS: dict[str, Task] = {
    "translation": Translation(),
    "parsing": Parsing(),
    "language-model": NextToken(),
    "masked-language-model": MaskedLanguageModel(),
    "antecedent": Antecedent(),
    "digits": Digits(),
}


def task_of(config: Config) -> Task:
    """The task of a configuration."""
    return TASKS[config.data.task]
