"""Compare the committed page of a lesson with the one that it makes today.

Prose and code must be equal. Of output, a measured number may be any in its band, which the lesson itself checks;
numbers of a table may differ by 10 %, because a trained model differs from one processor to another, and others by 5 %;
times, rounding errors and lines that say "yours may differ", by any amount.
"""

import re
from difflib import SequenceMatcher
from itertools import zip_longest

from lessons import MEASURED, NUMBER, TABLE

OF_THE_MACHINE = re.compile(r"(?<=:\ )backward\ .*(?=\ ok$)|^.*(?=\ {3}\(yours\ may\ differ\)$)")
"""The part of a line that depends on the machine: the direction with the largest rounding error in a gradient check,
and a line of `varying`.
"""


def differences(before, now):
    """Yield the lines that differ between two texts of a page: number, line before, line now ("" for no line)."""
    old, new = before.splitlines(), now.splitlines()
    old_lines, new_lines = comparable(old), comparable(new)
    matcher = SequenceMatcher(
        None, [words for words, _ in old_lines], [words for words, _ in new_lines], autojunk=False
    )
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        pairs = zip_longest(range(start, end), range(new_start, new_end))
        for i, j in pairs:
            within = 0.1 if tag == "equal" and old[i].startswith("|") else 0.05
            if tag != "equal" or not all(agree(x, y, within) for x, y in zip(old_lines[i][1], new_lines[j][1])):
                yield (start if i is None else i) + 1, "" if i is None else old[i], "" if j is None else new[j]


def comparable(lines):
    """Split each line into the words that must be equal and the numbers that must nearly be equal.

    Of output these are the words, without the spaces, which depend on the numbers; of a table of measurements all
    columns but the values.
    """
    found = []
    closing = kind = ""
    for line in lines:
        opening = re.fullmatch("(`{3,})text", line)
        if closing:
            closing = "" if line == closing else closing
            found.append(as_output(line) if closing else (line, []))
        elif kind and line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)
            found.append(as_output(line) if kind == TABLE else ("|".join([*cells[:2], *cells[3:]]), []))
        else:
            closing = opening[1] if opening else ""
            goes_on = not line and found and found[-1][0] == kind
            kind = line if line in (MEASURED, TABLE) else kind if goes_on else ""
            found.append((line, []))
    return found


def as_output(line):
    line = OF_THE_MACHINE.sub("…", line)
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(line)]
    return "output " + "".join(NUMBER.sub("#", line).split()), numbers


def agree(x, y, within):
    """To this share; below 1e-8 any two do: nearly all such are errors of rounding, or of finite differences."""
    largest = max(abs(x), abs(y))
    return x == y or abs(x - y) <= within * largest or largest < 1e-8  # in hexadecimal, 20e387 is infinite
