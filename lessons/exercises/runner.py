"""Run the learner's code in a process of its own, so that it can't hang, end or confuse the command that asked.

`supervisor.py` starts it, as the leader of a process group, and reads what it prints and its answers from pipes. Each
answer is a line of JSON: a state, a message, a diagnosis or data.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import resource
import runpy
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from exercises.catalogue import FILES, FUNCTIONS
from exercises.checker import Crashed, Verdict, check
from exercises.halves import Slip
from exercises.hunts import HUNTS, Hunt
from exercises.source import Hers, merged
from exercises.supervisor import FILE, MEMORY, VERDICTS

FRAMES = 4
"""Number of calls of a traceback that are shown at most; a recursion without end has a thousand."""

LONGEST = 5000
"""Characters of a message at most: the learner's code may raise an error whose text has millions."""

N_SCORED = 100
"""So many sentences of the test set are translated after training."""


def main(directory: str, action: str, *arguments: str) -> None:
    """Act, and leave, whatever threads still run."""
    answer = int(os.environ.pop(VERDICTS))
    os.set_inheritable(answer, False)

    def tell(state: str, message: str, data: Any = "") -> None:
        for stream in (sys.stdout, sys.__stdout__):  # the learner may have replaced it
            with suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        texts = [state, message if len(message) <= LONGEST else message[:LONGEST] + " ...", data]
        with suppress(OSError):  # the learner's code has closed it
            os.write(answer, json.dumps(texts).encode() + b"\n")

    here = Path(directory)
    if action == "check":
        for name in arguments:
            tell(*verdict_on(name, here))
    elif action == "run":
        tell(*guarded(here, run, here, *arguments))
    else:
        tell(*result_of(ACTIONS[action], here, *arguments))
    os._exit(0)


# Checking -------------------------------------------------------------------------------------------------------------


def verdict_on(name: str, directory: Path) -> Verdict:
    """Check a function or a hunt. Whatever goes wrong is a verdict."""
    return guarded(directory, judge, name, directory)


def judge(name: str, directory: Path) -> Verdict:
    if name in HUNTS:
        return verdict_on_hunt(HUNTS[name], directory)
    function = FUNCTIONS[name]
    hers = read(directory)
    if name not in hers[function.file].written:
        missing = name in hers[function.file].missing
        how = f"missing in {function.file}.py: scratchformer learn start adds it" if missing else "not written yet"
        return Verdict("not yet" if missing else "not written", how, how)
    return check(function, merged(function.file, hers, [name]))


def verdict_on_hunt(hunt: Hunt, directory: Path) -> Verdict:
    hers = Hers(directory / "hunts" / f"{hunt.name}.py", [hunt.function])
    if hers.missing:
        return Verdict("not yet", f"hunts/{hunt.name}.py defines no function {hunt.function}")
    module = merged("transformer", {"transformer": hers}, [hunt.function])
    with np.errstate(all="ignore"):
        complaint = hunt.complaint(getattr(module, hunt.function), module)
    return Verdict("not yet", complaint, complaint) if complaint else Verdict("passed", "solved")


def read(directory: Path) -> dict[str, Hers]:
    """The learner's files that are there, parsed."""
    return {
        file: Hers(directory / f"{file}.py", names)
        for file, names in FILES.items()
        if (directory / f"{file}.py").exists()
    }


def guarded(directory: Path, function: Callable[..., Verdict], *arguments: Any) -> Verdict:
    """Call a function; an error of the learner's code becomes a verdict, with the lines that led to it."""
    try:
        return function(*arguments)
    except Crashed as crash:
        return Verdict("not yet", f"{crash}\n{own_traceback(crash.__cause__, directory)}")
    except Slip as slip:
        return Verdict("not yet", str(slip), str(slip))
    except FileNotFoundError as error:
        return Verdict("not yet", f"{error.filename} is missing: scratchformer learn start writes it")
    except BaseException as error:  # no check foresees every value
        return Verdict("not yet", f"your code ends with an error:\n{own_traceback(error, directory)}")


def own_traceback(error: BaseException | None, directory: Path, program: str = "") -> str:
    """The message of an error, and the lines of the learner's files, or of her program, that led to it."""
    assert error
    use_reserve()

    def is_hers(file: str) -> bool:
        return file == program or in_folder(file, directory)

    own = (step for step in traceback.walk_tb(error.__traceback__) if is_hers(step[0].f_code.co_filename))
    frames = traceback.StackSummary.extract(iter(deque(own, maxlen=FRAMES)))
    lines = [f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}\n    {frame.line}" for frame in frames]
    what = "".join(traceback.format_exception_only(error)).replace(f"{directory}{os.sep}", "").rstrip()
    return "\n".join([*lines, what, *limits_hit(error, what)])


def in_folder(file: str, directory: Path) -> bool:
    return file.startswith(f"{directory}{os.sep}")


def limits_hit(error: BaseException, text: str) -> list[str]:
    """The limit of the check that explains the error of this text, as a line, if one does."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "can't start new thread" in text:
        return [f"(your code may use {MEMORY / 2**30:g} GiB of memory)"]
    if number == errno.EFBIG:
        return [f"(a file that your code writes may have {FILE // 10**6} MB)"]
    return []


def use_reserve() -> None:
    """From now on the memory that is left for the check itself may be used, too."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(ValueError, OSError):  # macOS does not limit the memory
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


# The whole file -------------------------------------------------------------------------------------------------------


def result_of(action: Callable[..., dict[str, Any]], directory: Path, *arguments: str) -> tuple[str, str, Any]:
    """Act -> a state, a message, data"""
    data: dict[str, Any] = {}

    def acting() -> Verdict:
        file = whole(directory)
        try:
            data.update(action(file, *arguments))
        except SystemExit as end:  # by which the file itself says what it refuses
            if isinstance(end.code, str):
                return Verdict("refused", end.code)
            raise
        return Verdict("passed", "")

    verdict = guarded(directory, acting)
    return verdict.state, verdict.message, data


class Whole:
    """The learner's file with ours in its gaps, and which functions of it have run."""

    def __init__(self, module: ModuleType, written: Iterable[str]) -> None:
        self.module, self.written, self.ran = module, list(written), set[str]()
        for name in FILES["transformer"]:
            setattr(module, name, self.noticed(name, getattr(module, name)))

    def noticed(self, name: str, function: Callable) -> Callable:
        @functools.wraps(function)
        def noticing(*arguments: Any, **named: Any) -> Any:
            self.ran.add(name)
            return function(*arguments, **named)

        return noticing

    @property
    def hers(self) -> dict[str, Any]:
        """Of the functions that ran, those that she has written."""
        return {"ran": len(self.ran), "hers": [name for name in self.written if name in self.ran]}


def whole(directory: Path) -> Whole:
    hers = {"transformer": read(directory)["transformer"]}
    module = merged("transformer", hers)
    module.WEIGHTS = directory / "transformer.npz"  # type: ignore[attr-defined]
    return Whole(module, hers["transformer"].written)


def train(file: Whole, steps: str) -> dict[str, Any]:
    """Train, then score translations of the test set."""
    from scratchformer.text.bleu import corpus_scores

    module, losses = file.module, list[float]()
    loss_of = module.loss_of

    def noting(*arguments: Any, **named: Any) -> Any:
        loss, backward = loss_of(*arguments, **named)
        losses.append(float(loss))
        return loss, backward

    module.loss_of = noting  # type: ignore[attr-defined]
    module.rng = np.random.default_rng(0)  # type: ignore[attr-defined]
    start = time.perf_counter()
    module.train(int(steps)) if steps else module.train()
    seconds = time.perf_counter() - start
    pairs = [
        ((module.CORPUS / f"test.{language}").read_text("utf-8").splitlines()[:N_SCORED]) for language in ("en", "de")
    ]
    print(f"translating {N_SCORED} test sentences ...", flush=True)
    translations = [translation(module, sentence) for sentence in pairs[0]]
    bleu = corpus_scores(translations, pairs[1]).bleu
    return {
        "steps": len(losses),
        "loss": losses[-1],
        "seconds": seconds,
        "bleu": bleu,
        "sentences": N_SCORED,
        **file.hers,
    }


def translation(module: ModuleType, sentence: str) -> str:
    """Return what `translate` prints after the arrow."""
    return printed(module.translate, sentence).partition(" -> ")[2].strip()


def printed(function: Callable, *arguments: Any) -> str:
    with redirect_stdout(StringIO()) as output:
        function(*arguments)
    return output.getvalue()


def translate(file: Whole, sentence: str) -> dict[str, Any]:
    file.module.translate(sentence)
    return file.hers


def finish(file: Whole) -> dict[str, Any]:
    """Check every gradient of the whole file by finite differences."""
    return {"said": (printed(file.module.check).strip().splitlines() or ["no gradient is wrong"])[-1], **file.hers}


# A program of hers ----------------------------------------------------------------------------------------------------


def run(directory: Path, program: str) -> Verdict:
    """Run a program in which `transformer` and `more` are the learner's files with ours in their gaps."""
    module = merged("more", read(directory))
    sys.modules.update(transformer=module, more=module)
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            return Verdict("refused", end.code)
        if end.code:
            raise
    except Exception as error:
        return Verdict("not yet", f"your program ends with an error:\n{own_traceback(error, directory, program)}")
    return Verdict("passed", "")


ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {"train": train, "translate": translate, "finish": finish}
