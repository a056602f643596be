"""Actions of `scratchformer learn`. Each function prints, and returns the exit code."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from exercises import desk
from exercises.catalogue import FILES, FUNCTIONS
from exercises.hunts import HUNTS
from exercises.source import LESSONS, functions_of_ours, source_of_ours
from scratchformer.errors import UserError
from scratchformer.files import replace_text, user_error

TRAINED = "training.json"
LEARNT = 50
"""BLEU of a model that has begun to translate."""

HINTS = ("the rule in words", "the formula")


def start(directory: Path | None) -> int:
    directory = directory or Path(desk.USUAL)
    print("\n".join(desk.start(directory)))
    print(next_step(set(desk.begun(directory))) + f" (in {directory / 'transformer.py'})")
    return 0


def page(lesson: str) -> str:
    """The page of a lesson, from the root of the clone."""
    found = next(LESSONS.glob(f"{lesson}_*.py"), None)
    return f"docs/lessons/{found.stem}.md" if found else f"lesson {lesson}"


def where(directory: Path) -> int:
    """Say how far the learner is, and what is next; at the end, what her file has come to."""
    begun = desk.begun(directory)
    if not begun:
        print("nothing is written yet", flush=True)
    states = {name: answer[0] for name, answer in desk.check(begun, directory, quiet=True)}
    for file, names in FILES.items():
        report(f"{file}.py", names, "functions are yours", states)
    report("hunts", list(HUNTS), "solved", states)
    wrong = [name for name in begun if states[name] != "passed"]
    if wrong:
        print(f"not yet: {', '.join(wrong)}; scratchformer learn check {wrong[0]} says why")
    trained = last_training(directory)
    if trained:
        print(f"last training: {summary(trained)}")
    if all(states.get(name) == "passed" for name in FILES["transformer"]):
        return finish(directory, trained)
    print(next_step({name for name, state in states.items() if state == "passed"}))
    return 0


def report(what: str, names: list[str], done: str, states: dict[str, str]) -> None:
    """Print how many have passed, and which have and have not."""
    passed = [name for name in names if states.get(name) == "passed"]
    rest = [name for name in names if name not in passed]
    print(f"{what}: {len(passed)} of {len(names)} {done}{listed(passed)}")
    if rest:
        print(textwrap.fill(", ".join(rest), 100, initial_indent="  to do: ", subsequent_indent="    "))


def listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def next_step(done: set[str]) -> str:
    """The next function of the file that is not done, and what to do."""
    for name in FILES["transformer"]:
        if name not in done:
            lesson = FUNCTIONS[name].lesson
            return f"next: write {name} (lesson {lesson}, {page(lesson)}), then: scratchformer learn check {name}"
    return "next: scratchformer learn"


def finish(directory: Path, trained: dict[str, Any]) -> int:
    """The whole file is hers: check all its gradients, print her table, write her page."""
    total = len(FILES["transformer"])
    print(f"all {total} functions are yours; checking their gradients together ...", flush=True)
    state, message, data = desk.act(directory, "finish")
    if state != "passed":
        return failed(state, message)
    if not trained or len(trained["hers"]) < trained["ran"]:
        print(f"{data['said']}\nnext: scratchformer learn train, with nothing of ours in it")
        return 0
    rows = {
        "functions": f"{total} of {total} yours",
        "gradients": data["said"],
        "training": f"{trained['steps']} steps in {trained['seconds']:.0f} s, smoothed loss {trained['loss']:.3f}",
        "BLEU": f"{trained['bleu']:.1f}, {trained['sentences']} test sentences",
    }
    print("\nYour Transformer\n" + "\n".join(f"  {name:11}{text}" for name, text in rows.items()))
    return explore(directory)


def summary(trained: dict[str, Any]) -> str:
    return (
        f"{trained['steps']} steps in {trained['seconds']:.0f} s, smoothed loss {trained['loss']:.3f}, BLEU "
        f"{trained['bleu']:.1f} ({trained['sentences']} test sentences); of the {trained['ran']} functions that ran, "
        f"{len(trained['hers'])} yours"
    )


def last_training(directory: Path) -> dict[str, Any]:
    """Read what the last training gave, if it can be read."""
    try:
        trained = json.loads((directory / TRAINED).read_text("utf-8"))
        summary(trained)
        return trained
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def check(directory: Path, names: list[str]) -> int:
    """Print a verdict on each function, and what is next. -> 0 if all have passed, else 1"""
    wanted = [each for name in names for each in desk.named(name)] if names else desk.begun(directory)
    if not wanted:
        print("nothing is written yet; scratchformer learn says what is next")
        return 1
    states = {}
    for name, (state, message, _) in desk.check(list(dict.fromkeys(wanted)), directory):
        states[name] = state
        print(as_text(name, state, message), flush=True)
    if all(state == "passed" for state in states.values()):
        print(next_step(set(desk.begun(directory))))
        return 0
    return 1


def as_text(name: str, state: str, message: str) -> str:
    """A verdict as the learner reads it: one line if there is nothing to mend."""
    if state == "passed":
        return f"{name}: passed. {message}"
    if state == "not written":
        return f"{name}: not written yet"
    help_ = f"  for help: scratchformer learn hint {name}" if name in FUNCTIONS else ""
    return "\n".join(filter(None, [f"{name}: not yet", textwrap.indent(message, "  "), help_]))


def hint(name: str, number: int) -> int:
    """The hint of this number, from 1, and how to get the next."""
    function = one(name, functions_only=True)
    text = textwrap.fill(FUNCTIONS[function].hints[number - 1], 100, break_long_words=False, break_on_hyphens=False)
    after = f"scratchformer learn hint {name} 2" if number == 1 else f"scratchformer learn show {name}"
    print(f"{function}, {HINTS[number - 1]}:\n{text}\n(more: {after})")
    return 0


def show(name: str, sure: bool) -> int:
    """Ours, after a question."""
    name = one(name)
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(f"learn show {name}: type it in a terminal, where it asks first, or add --yes")
        try:
            reply = input(f"Show our {name}? It is worth another try, with `scratchformer learn hint {name}`. [y/N] ")
        except EOFError:
            reply = ""
        if reply.strip().lower() not in ("y", "yes"):
            return 0
    if name in HUNTS:
        print(HUNTS[name].solution.strip())
    else:
        file = FUNCTIONS[name].file
        print(f"# lessons/{file}.py, line {functions_of_ours(file)[name].lineno}\n{source_of_ours(file, name)}")
    return 0


def one(name: str, functions_only: bool = False) -> str:
    """Raises UserError unless the name means a single function, or a hunt."""
    found = desk.named(name)
    if len(found) > 1:
        raise UserError(f"learn: {name} means several: {', '.join(found)}; name one of them")
    if functions_only and found[0] in HUNTS:
        raise UserError(
            f"learn hint {found[0]}: a hunt has no hints; scratchformer learn show {found[0]} shows a repair"
        )
    return found[0]


def train(directory: Path, steps: int | None) -> int:
    """Train her file, with ours in its gaps."""
    require_transformer(directory)
    wrong = [name for name, (state, _, _) in desk.check(written(directory), directory, quiet=True) if state != "passed"]
    if wrong:
        print(f"{', '.join(wrong)}: no check passed, so the model may not learn; scratchformer learn check {wrong[0]}")
    print(f"training your file with {len(written(directory))} functions of yours, the rest is ours", flush=True)
    state, message, data = desk.act(directory, "train", str(steps or ""))
    if state != "passed":
        return failed(state, message)
    replace_text(directory / TRAINED, json.dumps(data, indent=1) + "\n")
    print(f"{summary(data)}{listed(data['hers'])}")
    if steps and data["bleu"] < LEARNT:
        print(f"{steps} steps are too few to translate: scratchformer learn train, without --steps, takes some minutes")
    print('next: scratchformer learn translate "The dog ate the apple.", or scratchformer learn explore')
    return 0


def written(directory: Path) -> list[str]:
    return [name for name in desk.begun(directory) if name in FILES["transformer"]]


def require_transformer(directory: Path) -> None:
    desk.parsed(directory / "transformer.py", FILES["transformer"])


def failed(state: str, message: str) -> int:
    if state == "refused":
        raise UserError(message)
    print(message.strip())
    return 1


def translate(directory: Path, sentence: str) -> int:
    require_transformer(directory)
    require_weights(directory)
    state, message, data = desk.act(directory, "translate", sentence)
    if state != "passed":
        return failed(state, message)
    print(f"(of the {data['ran']} functions that ran, {len(data['hers'])} were yours)")
    return 0


def run(directory: Path, program: str) -> int:
    """Run a program of hers, with ours in the gaps of her files."""
    if not Path(program).is_file():
        raise UserError(f"{program}: no such file; name a program of yours, such as gpt.py of lesson 22")
    state, message, _ = desk.act(directory, "run", str(Path(program).absolute()))
    return 0 if state == "passed" else failed(state, message)


def require_weights(directory: Path) -> Path:
    weights = directory / "transformer.npz"
    if not weights.exists():
        raise UserError(f"{weights}: not there; scratchformer learn train writes it")
    return weights


def explore(directory: Path) -> int:
    """Write the explorer's page with her weights."""
    from exercises.own_page import write_page

    out = directory / "explorer.html"
    write_page(require_weights(directory), out)
    print(f"{out}: your weights in the browser; open it")
    return 0


def notebook(lesson: str) -> int:
    """Write a lesson as a Jupyter notebook into the current directory."""
    source = next(LESSONS.glob(f"{lesson.zfill(2)}_*.py"), None)
    if not source:
        raise UserError(f"learn notebook {lesson}: no such lesson; they are 00 to {last_lesson()}")
    out = Path(f"{source.stem}.ipynb")
    if out.exists():
        raise UserError(f"{out}: exists; move it away, and run this again")
    first = f"import sys\n\nsys.path.insert(0, {str(LESSONS)!r})"
    cells = [cell("code", first), *(cell(kind, text) for kind, text in cells_of(source.read_text("utf-8")))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    with user_error(out, "cannot write"):
        replace_text(
            out,
            json.dumps(
                {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}, indent=1
            ),
        )
    print(f"{out}: lesson {lesson.zfill(2)}; open it with `jupyter lab {out}`")
    return 0


def last_lesson() -> str:
    return max(path.stem[:2] for path in LESSONS.glob("[0-9][0-9]_*.py"))


def cells_of(text: str) -> list[tuple[str, str]]:
    """The cells of a percent script: kind and text."""
    cells = []
    for part in ("\n" + text).split("\n# %%")[1:]:
        first, _, body = part.partition("\n")
        if "[markdown]" in first:
            lines = [line[2:] if line.startswith("# ") else line.removeprefix("#") for line in body.splitlines()]
            cells.append(("markdown", "\n".join(lines).strip()))
        else:
            cells.append(("code", body.strip()))
    return [each for each in cells if each[1]]


def cell(kind: str, text: str) -> dict[str, Any]:
    shared = {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
    return {**shared, "execution_count": None, "outputs": []} if kind == "code" else shared
