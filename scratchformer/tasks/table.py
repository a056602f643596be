"""All tasks that a model can be trained for, by the name that `data.task` gives them."""

from __future__ import annotations

import importlib

from scratchformer.config import Config
from scratchformer.tasks.task import Task

TASKS = {
    "translation": "TranslationTask",
    "parsing": "ParsingTask",
    "language-model": "LanguageModelTask",
    "masked-language-model": "MaskedLanguageModelTask",
    "antecedent": "AntecedentTask",
    "digits": "DigitsTask",
}
"""Name -> class. It is in the module of the task's name, which is imported when the task is used."""


def task_named(name: str) -> Task:
    """The task of this name."""
    module = importlib.import_module(f"scratchformer.tasks.{name.replace('-', '_')}")
    return getattr(module, TASKS[name])()


def task_of(config: Config) -> Task:
    """The task of a configuration."""
    return task_named(config.data.task)
