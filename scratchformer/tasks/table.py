"""All tasks that a model can be trained for, by the name that `data.task` gives them."""

from __future__ import annotations

from scratchformer.config import Config
from scratchformer.tasks.antecedent import AntecedentTask
from scratchformer.tasks.digits import DigitsTask
from scratchformer.tasks.language_model import LanguageModelTask
from scratchformer.tasks.masked_language_model import MaskedLanguageModelTask
from scratchformer.tasks.parsing import ParsingTask
from scratchformer.tasks.task import Task
from scratchformer.tasks.translation import TranslationTask

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
