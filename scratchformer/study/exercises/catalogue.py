"""All exercises, in the order of the lessons."""

from __future__ import annotations

from scratchformer.study.exercises import (
    lesson_00,
    lesson_01,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_07,
    lesson_12,
    lesson_20,
)
from scratchformer.study.exercises.exercise import Exercise

LESSONS = (lesson_00, lesson_01, lesson_04, lesson_05, lesson_06, lesson_07, lesson_12, lesson_20)

EXERCISES: dict[str, Exercise] = {exercise.id: exercise for lesson in LESSONS for exercise in lesson.EXERCISES}
"""NN_slug -> exercise"""
