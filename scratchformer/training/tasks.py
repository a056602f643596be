"""All tasks that a model can be trained for, by the name that `data.task` gives them."""

from __future__ import annotations

from scratchformer.config import Config
from scratchformer.training.task import Task
from scratchformer.training.task_language_model import NextToken
from scratchformer.training.task_parsing import Parsing
from scratchformer.training.task_translation import Translation

TASKS: dict[str, Task] = {"translation": Translation(), "parsing": Parsing(), "language-model": NextToken()}


def task_of(config: Config) -> Task:
    """The task of a configuration."""
    return TASKS[config.data.task]
