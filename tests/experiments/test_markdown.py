"""Text becomes Markdown that shows it; our own Markdown stays as it is."""

import html
import re

from scratchformer.errors import printable
from scratchformer.experiments.markdown import Markup, escaped, markup_table, table


def test_text_is_shown_as_it_is_and_stays_in_its_line_and_cell(hostile):
    written = escaped(hostile)
    assert html.unescape(re.sub(r"\\(_|[^\w\s])", r"\1", written)) == printable(hostile)
    bare = re.sub(r"\\.", "", written)
    assert not re.search(r"[<>|`*\[\]~]|(^|\W)_|_(\W|$)|&(?!lt;|gt;|amp;)", bare)
    assert written.isprintable() and escaped(written) == written
    lines = table(["name", hostile], [(hostile, 1), ["plain", hostile]]).split("\n")
    assert len(lines) == 4 and {re.sub(r"\\.", "", line).count("|") for line in lines} == {3}


def test_a_table_of_text_and_one_of_markdown():
    found = table(["name", "a|b"], [("x|y", 1), [Markup("`step_00000001`"), "step_00000001"]])
    rows = ["| name | a\\|b |", "| --- | --- |", "| x\\|y | 1 |", "| `step_00000001` | step_00000001 |"]
    assert found.splitlines() == rows
    assert markup_table(["name"], [["`c|d`"], [None]]).splitlines()[2:] == ["| `c\\|d` |", "| None |"]
