"""Exercises: the learner's function is compared with the truth, and a wrong one is told what is wrong with it.

Adding the exercise `NN_slug`:

1. `lesson_NN.py` holds it: a `Backward` (write a gradient), `Build` (write a function) or `Break` (make an invariant
   fail) of `exercise.py`, in the tuple `EXERCISES` of that module, and the module in `catalogue.py`. Inputs are named;
   every function of an exercise takes the values that its parameters name. All sizes differ, and a second case is
   degenerate: one row, one sequence, only padding.
2. `stubs/NN_slug.py` is what the learner gets: the task, the shapes, `raise NotImplementedError`, the two last lines.
3. `solution` is an adapter: the exercise's signature, mapped onto the library's own functions, which stand in
   `library`. It holds no formula. `scratchformer learn solution` prints both.
4. Three `hints`: shapes, the rule in words, the formula.
5. `tests/lessons/exercises/wrong/NN_slug.py` holds 4 to 8 classic wrong answers, each with the diagnosis it must get;
   no two may get the same. What `diagnosis.py` knows needs nothing: shapes, transposes, signs, swapped names, ignored
   upstream gradients, means for sums. What only the exercise can know, its `Result` names: the terms of a sum, the
   factors of a product, regions such as padded positions, and suspects, which compute what one mistake yields. The
   tests plant each of these mistakes: its function must work in every case, and nothing else may explain it first.
6. `python tools/wrong_answers.py` writes the table of wrong answers anew.
"""
