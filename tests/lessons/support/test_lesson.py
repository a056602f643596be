"""Numbers and figures of lessons: a number outside its band, an inequality and a figure without words are errors."""

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from support import lesson
from support.drawing import Drawing

ALT = "A line that rises from zero to one, then stays where it is."


@pytest.mark.parametrize(
    "value, lo, hi, printed",
    [
        (0.0, 0, 1, "weight: 0   (between 0 and 1)\n"),
        (1.0, 0, 1, "weight: 1   (between 0 and 1)\n"),
        (0, 0, 0, "weight: 0   (exactly 0)\n"),
        (np.int64(867_328), 800_000, 867_328, "weight: 867,328   (between 800,000 and 867,328)\n"),
    ],
)
def test_a_number_in_its_band_is_printed_and_returned(value, lo, hi, printed, capsys):
    assert lesson.measure("weight", value, lo, hi) == value
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("value", [-0.001, 1.001, np.nan, np.inf])
def test_a_number_outside_its_band_is_an_error(value):
    with pytest.raises(lesson.Unexpected, match="weight is .* says between 0 and 1"):
        lesson.measure("weight", value, 0, 1)


def test_equal_arrays_are_printed_with_their_difference(capsys):
    lesson.same("dx", np.array([1.0, 2.0]), np.array([1.0, 2.0 + 2e-13]))
    lesson.same("zeros", np.zeros(3), np.zeros(3))
    tolerance = "   (relative difference at most 1e-12)\n"
    assert capsys.readouterr().out == f"dx: equal to 1e-13{tolerance}zeros: equal{tolerance}"


@pytest.mark.parametrize(
    "ours, complaint",
    [(np.ones((2, 3)), "the shapes"), (np.array([1.0, 2.1]), "relative difference"), (np.array([1.0, np.nan]), "nan")],
)
def test_different_arrays_are_an_error(ours, complaint):
    with pytest.raises(lesson.Unexpected, match=complaint):
        lesson.same("dx", ours, np.array([1.0, 2.0]))


def test_a_time_and_what_may_vary_say_so(capsys):
    for seconds in 2.5, 0.0123, 4e-6:
        lesson.duration("step", seconds)
    lesson.duration("step", 0.3, over=0.2)
    lesson.varying("    rate 0.1: 0.52")
    times = [f"step: {time}   (a time; yours differs)" for time in ("2.5 s", "12.3 ms", "4 us", "1.5 times as long")]
    assert capsys.readouterr().out.splitlines() == [*times, "    rate 0.1: 0.52   (yours may differ)"]


def test_a_recorded_result_says_where_it_comes_from(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lesson, "ROOT", tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    result = {"command": "python x.py", "provenance": {"date": "2026-01-01", "commit": "0123456789abcdef"}, "loss": 2}
    (tmp_path / "benchmarks" / "results" / "x.json").write_text(json.dumps(result), encoding="utf-8")
    assert lesson.recorded("x") == result
    printed = capsys.readouterr().out
    assert all(part in printed for part in ["results/x.json", "2026-01-01", "012345678", "python x.py"])
    with pytest.raises(FileNotFoundError):
        lesson.recorded("y")


def test_a_table_is_printed_in_columns(capsys):
    lesson.table(["word", "weight"], [["the", 0.125], ["street", "2/8"]])
    assert capsys.readouterr().out == "word     weight\nthe      0.125\nstreet   2/8\n"
    with pytest.raises(ValueError, match="2 columns, and a row has 1 cells"):
        lesson.table(["word", "weight"], [["the"]])


@pytest.mark.parametrize(
    "alt, caption, complaint",
    [
        ("a line", "It rises.", "the alternative text says too little"),
        (ALT, "It rises", "the caption is not a sentence"),
    ],
)
def test_a_figure_without_words_is_an_error(alt, caption, complaint):
    with pytest.raises(ValueError, match=f"figure 01_x: {complaint}"):
        lesson.show(Figure(), "01_x", alt, caption)


def test_a_script_leaves_its_figures_beside_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "lesson.py"), raising=False)
    monkeypatch.chdir(tmp_path)
    lesson.show(Figure(), "01_x", ALT, "It rises.")
    lesson.show(Drawing(40, 30), "01_y", ALT, "It is\n empty.")
    assert (tmp_path / "out" / "01_x.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "01_y.svg").read_text(encoding="utf-8").startswith("<svg")
    assert capsys.readouterr().out == "figure: out/01_x.png\n    It rises.\nfigure: out/01_y.svg\n    It is empty.\n"


def test_a_notebook_shows_it_under_the_cell(tmp_path, monkeypatch, capsys):
    shown = []
    notebook, display = ModuleType("IPython"), ModuleType("IPython.display")
    notebook.get_ipython = lambda: "a running notebook"
    display.Image = display.SVG = SimpleNamespace
    display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.chdir(tmp_path)
    lesson.show(Figure(), "01_x", ALT, "It rises.")
    (image,) = shown
    assert image.alt == ALT and (tmp_path / image.filename).exists()
    assert capsys.readouterr().out == "It rises.\n"


def test_whoever_builds_pages_takes_figures_numbers_and_tables(monkeypatch):
    taken = []
    for name in "display", "record", "tabulate":
        monkeypatch.setattr(lesson, name, lambda *arguments: taken.append(arguments))
    figure = Figure()
    lesson.show(figure, "01_x", ALT, "It rises.")
    lesson.measure("weight", 0.5, 0, 1)
    lesson.table(["a"], [[1]])
    assert taken == [(figure, "01_x", ALT, "It rises."), (("weight", "0.5", "between 0 and 1"),), (["a"], [["1"]])]
