"""`scratchformer learn`: the learner writes lessons/transformer.py and lessons/more.py herself, function by function.

`source.py` puts her functions and ours into one module; `checker.py` compares a function with ours and says what is
wrong; `desk.py` keeps her directory; `runner.py` runs her code in a process of its own, within the limits that
`supervisor.py` sets.

Adding a function: a `Function` in `layers.py`, `whole_model.py`, `training.py` or `additions.py`, in the tuple
`FUNCTIONS` of that module.

1. `cases`: three to five, all sizes different in the first, one degenerate (one sentence, one word, one head), and what
   the function is about (padding, repeated ids). Random numbers come from the generator that is handed over; what else
   is called comes from the module, which is ours.
2. `observe`: `Halves` for a differentiable function, `Plain` for one that returns a value, or a generator of its own
   that calls the function in a made-up surrounding and yields names and values (arrays, numbers, texts).
3. `hints`: the rule in words; the formula.
4. `mistakes`: four to a dozen that learners make, each as replaced pieces of our text and a sentence that says what is
   wrong and what is right instead, so that it reads well after "dK is wrong: ". The test plants every one: it must be
   found wrong, told by its own sentence, and no two may be told apart by nothing.
"""
