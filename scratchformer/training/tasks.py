"""All tasks that a model can be trained for, by the name that `data.task` gives them."""

from __future__ import annotations

from scratchformer.config import Config
from scratchformer.training.task import Task
from scratchformer.training.task_antecedent import AntecedentTask
from scratchformer.training.task_digits import DigitsTask
from scratchformer.training.task_language_model import LanguageModelTask
from scratchformer.training.task_masked_language_model import MaskedLanguageModelTask
from scratchformer.training.task_parsing import ParsingTask
from scratchformer.training.task_translation import TranslationTask

TASKS: dict[str, Task] = {
    "translation": TranslationTask(),
    "parsing": ParsingTask(),
    "language-model": LanguageModelTask(),
    "masked-language-model": MaskedLanguageModelTask(),
    "antecedent": AntecedentTask(),
    "digits": DigitsTask(),
}


def task_of(config: Config) -> Task:
    """The task of a configuration."""
    return TASKS[config.data.task]
