"""The builder on lessons of a few lines: cells, output, figures, links, maths, and differences of pages."""

import re
import shutil
from xml.etree import ElementTree

import lesson_figures
import pytest
from lesson_run import Cell, LessonError, cells_of
from matplotlib.figure import Figure
from page_differences import differences

import lessons
from support.drawing import Drawing
from support.lesson import quote

ALT = "A line that rises from zero to one, then stays where it is."
FIRST = rf"""# %% [markdown]
# # 01 · The first, with $x_1$ and `code`
#
# **Does it work, with $a_i * b_i$?**
#
# *Needs nothing but [the next](02_second.py) · you will see
# a line · **side trip**.*

# %%
from matplotlib.figure import Figure

from support.drawing import Drawing
from support.lesson import duration, measure, show, table

print("before the figure")
figure = Figure(figsize=(4, 3))
figure.subplots().plot([0, 1, 1])
show(figure, "01_line",
     "{ALT}", "How $x_1$ rises.")
measure("a number_d_k", 0.5, 0, 1)
duration("this", 0.02)
table(["a | b", "c"], [["x*", 1.5], ["y", "−2 %"]])
measure("another", 2, 1, 3)
show(Drawing(40, 30), "01_drawing",
     "{ALT}", "A drawing.")

# %%
unprinted = 1

# %% [markdown]
# ## Question
#
# Compare $a_1 < b_2$ and $c_1 * d_2 * e_3$, at $5 \%$ of `$HOME` and \$3. See [the next](02_second.py#question), [a
# file](../scratchformer/nn/ops.py), [nn/ops.py](../scratchformer/nn/ops.py) and [outside](https://example.org/).
#
# $$
# \begin{{aligned}} a &= \frac{{b}}{{c}} \\
# d_1 &= e_2 \end{{aligned}}
# $$
#
# - an item
#
#   $$\sum_i x_i$$
#
# <details><summary>Answer</summary>
# Hidden *emphasis*.
# </details>
# Shown.
#
# | a | b |
# |---|--:|
# | 1 | $y$ |
#
# ## Check
#
# ### More
"""
SECOND = """# %% [markdown]
# # 02 · The second
#
# **What is `x` in the end?**
#
# *Needs [the first](01_first.py) · you will multiply.*

# %%
x = 6

# %%
print(x * 7, "<b>")
"""
LAB = f"""# %% [markdown]
# # Lab notes 01 · The first
#
# Behind [lesson 01](../01_first.py#question), with [ops.py](../../scratchformer/nn/ops.py).

# %%
import course  # noqa: F401  finds lessons/support
from matplotlib.figure import Figure
from support.lesson import measure, show

measure("in the notes", 3, 1, 4)
show(Figure(figsize=(2, 1)), "01_lab_empty",
     "{ALT}", "Nothing.")
"""
BROKEN = SECOND.replace("print(x * 7", "print(x / 0")


def write_lessons(root, *sources, lab=""):
    (root / "lessons" / "lab").mkdir(parents=True)
    for source in sources:
        name = "02_second" if "# 02 ·" in source else "01_first"
        (root / "lessons" / f"{name}.py").write_text(source, encoding="utf-8")
    if lab:
        shutil.copy(lessons.ROOT / "lessons" / "lab" / "course.py", root / "lessons" / "lab")
        (root / "lessons" / "lab" / "01_first.py").write_text(lab, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A directory with two lessons, lab notes of the first, and their pages. Only to be read; `own` is a copy."""
    root = write_lessons(tmp_path_factory.mktemp("built"), FIRST, SECOND, lab=LAB)
    lessons.build(root)
    return root


@pytest.fixture
def own(built, tmp_path):
    return shutil.copytree(built, tmp_path / "own")


@pytest.fixture(scope="module")
def first_page(built):
    return (built / "docs/lessons/01_first.md").read_text(encoding="utf-8")


def lesson_file(tmp_path, source):
    path = tmp_path / "01_lesson.py"
    path.write_text(source, encoding="utf-8")
    return path


def prose_of(text):
    return lessons.prose(lessons.ROOT / "lessons" / "01_x.py", Cell(True, text, 10))


# Cells and output -----------------------------------------------------------------------------------------------------


def test_a_lesson_falls_into_prose_and_code_with_their_lines(tmp_path):
    path = lesson_file(tmp_path, "# %% [markdown]\n# # Title\n#\n#   indented\n\n# %%\n\n# %%\nx = 1\n\n\ny = 2\n\n")
    assert cells_of(path) == [Cell(True, "# Title\n\n  indented", 2), Cell(False, "x = 1\n\n\ny = 2", 9)]


@pytest.mark.parametrize(
    "source, line, complaint",
    [
        ("import os\n# %%\n", 1, "begins with the mark"),
        ("# %%\nx = 1\n# %% code\n", 3, "a cell begins with"),
        ("# %% [markdown] Title\n# x\n", 1, "a cell begins with"),
        ("# %% [markdown]\n# text\nx = 1\n", 3, "a line of prose begins with"),
        ("# %% [markdown]\n#text\n", 2, "a line of prose begins with"),
    ],
)
def test_what_is_no_lesson_is_refused_with_its_line(tmp_path, source, line, complaint):
    with pytest.raises(LessonError, match=f"^lessons/01_lesson.py, line {line}: .*{complaint}"):
        cells_of(lesson_file(tmp_path, source))


def test_a_page_shows_code_then_what_it_put_out_in_that_order(first_page):
    assert first_page.startswith("<!-- made by `make lessons` from lessons/01_first.py")
    parts = [
        "```python\nfrom matplotlib",
        "```text\nbefore the figure\n```",
        f"![{ALT}](figures/01_line.svg)\n\n**Figure 1.** How $`x_1`$ rises.",
        "<!-- measured -->\n\n| measured | value |  |\n| --- | --: | --- |\n"
        "| a number\\_d\\_k | 0.5 | ✓ |\n| this | 20 ms | yours differs |\n\n",
        "<!-- table -->\n\n| a \\| b | c |\n| --- | --: |\n| x\\* | 1.5 |\n| y | −2 % |\n\n",
        "| --- | --: | --- |\n| another | 2 | ✓ |\n\n",
        "**Figure 2.** A drawing.",
        "```python\nunprinted = 1\n```\n\n## Question",
        "[lab notes 01](lab/01_first.md)",
    ]
    assert [part for part in parts if part not in first_page] == []
    assert sorted(parts, key=first_page.index) == parts


def test_lab_notes_end_with_the_bands_of_the_page(built):
    text = (built / "docs/lessons/lab/01_first.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- made by `make lessons` from lessons/lab/01_first.py") and "About" not in text
    assert "[lesson 01](../01_first.md#question), with [ops.py](../../../scratchformer/nn/ops.py)" in text
    assert "| in the notes | 3 | between 1 and 4 |" in text and "](../figures/01_lab_empty.svg)" in text
    bands = text.partition("\n## Numbers of the page and their bands\n")[2]
    assert "| a number\\_d\\_k | 0.5 | between 0 and 1 |\n| this | 20 ms | a time; yours differs |\n" in bands
    assert "| another | 2 | between 1 and 3 |\n" in bands
    second = (built / "docs/lessons/lab/02_second.md").read_text(encoding="utf-8")
    assert "\n# Lab notes 02 · The second\n" in second and "[lesson 02](../02_second.md)" in second


def test_lab_notes_without_a_lesson_are_refused(tmp_path):
    root = write_lessons(tmp_path, lab=LAB)
    with pytest.raises(LessonError, match="lessons/lab/01_first.py, line 1: there is no lesson lessons/01_first.py"):
        lessons.build(root)


def test_cells_share_one_namespace(built):
    assert "```text\n42 <b>\n```" in (built / "docs/lessons/02_second.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("title, shown", [("", True), ("Setting up", True), ("The drawing, backward", False)])
def test_code_that_only_draws_is_left_out(title, shown):
    assert ("x = 6" in lessons.code(Cell(False, "x = 6", 1, title))) == shown


@pytest.mark.slow
def test_code_with_a_title_is_folded_away_and_still_runs(tmp_path):
    source = SECOND.replace("# %%\nx = 6", "# %% Setting up\nx = 6")
    root = write_lessons(tmp_path, FIRST, source)
    lessons.build(root)
    text = (root / "docs/lessons/02_second.md").read_text(encoding="utf-8")
    assert "<details><summary>Code: Setting up</summary>\n\n```python\nx = 6\n```\n\n</details>" in text
    assert "```text\n42 <b>\n```" in text


def test_output_with_backticks_gets_a_longer_fence():
    assert lessons.fenced("text", "a ```` b") == "`````text\na ```` b\n`````"
    assert lessons.fenced("text", "a `b`") == "```text\na `b`\n```"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, line, complaint",
    [
        ("print(1)\n1 / 0", 10, "ZeroDivisionError: division by zero"),
        ("def f():\n    return 1 / 0\n\n\nf()", 10, "ZeroDivisionError: division by zero"),
        ("x = 1\n\nx = = 1", 11, "SyntaxError"),
        ("x = 1\nassert x == 2", 10, "AssertionError: assert x == 2"),
        ("import warnings\nwarnings.warn('beware')", 10, "UserWarning: beware"),
        ("import sys\nsys.exit('enough')", 10, "SystemExit: enough"),
        ("import os\nos._exit(3)", 1, "the process ended with status 3"),
        ("from support.lesson import measure\nmeasure('x', 2, 0, 1)", 10, "Unexpected: x is 2, and the lesson"),
        ("from support.lesson import show\nshow(None, '02_x', 'y' * 40, 'A.')", 10, "ValueError: .* begin with 01_"),
    ],
)
def test_a_cell_that_fails_is_named_with_its_line_and_nothing_is_written(tmp_path, code, line, complaint):
    root = write_lessons(tmp_path, SECOND.partition("x = 6")[0].replace("02 ·", "01 ·") + f"{code}\n", SECOND)
    with pytest.raises(LessonError, match=rf"^lessons/01_first.py, line {line}: {complaint}"):
        lessons.build(root)
    assert not (root / "docs").exists()


def test_a_lesson_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(lessons, "SECONDS", 0.01)
    path = write_lessons(tmp_path, SECOND) / "lessons" / "01_first.py"
    with pytest.raises(LessonError, match="no end after 0.01 s"):
        lessons.run_lesson(path, tmp_path / "folder")


@pytest.mark.slow
def test_output_that_names_this_machine_is_refused(tmp_path):
    root = write_lessons(tmp_path, SECOND.replace("x * 7", repr(str(lessons.ROOT / "setup.cfg"))))
    with pytest.raises(LessonError, match="line 12: the output names a directory of this machine"):
        lessons.build(root)


@pytest.mark.slow
def test_a_figure_has_a_name_of_its_own(tmp_path):
    shows = "show(figure, '01_line', 'The same line again, drawn for the second time.', 'Twice.')\n"
    root = write_lessons(tmp_path, FIRST.replace("duration(", shows + "duration(", 1))
    with pytest.raises(LessonError, match="two figures 01_line"):
        lessons.build(root)


def test_the_command_ends_with_one_line_and_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lessons, "ROOT", write_lessons(tmp_path, BROKEN))
    monkeypatch.setattr(lessons, "run_lesson", failing_run)
    monkeypatch.setattr("sys.argv", ["lessons.py"])
    assert lessons.main() == 2
    assert capsys.readouterr().err == "lessons.py: lessons/02_second.py, line 9: ZeroDivisionError\n"


def failing_run(path, folder):
    raise LessonError(path, 9, "ZeroDivisionError")


# Markdown -------------------------------------------------------------------------------------------------------------


def test_maths_is_written_so_that_github_sees_no_markdown_in_it(first_page):
    assert "# 01 · The first, with $`x_1`$ and `code`" in first_page
    assert "Compare $`a_1 < b_2`$ and $`c_1 * d_2 * e_3`$, at $`5 \\%`$ of `$HOME` and \\$3." in first_page
    assert "**Does it work, with $`a_i * b_i`$?**" in first_page
    assert "\n```math\n\\begin{aligned} a &= \\frac{b}{c} \\\\\nd_1 &= e_2 \\end{aligned}\n```\n" in first_page
    assert "- an item\n\n  ```math\n  \\sum_i x_i\n  ```\n" in first_page


def test_maths_over_two_lines_becomes_one_line():
    assert prose_of("so $a =\n- b$ holds") == "so $`a = - b`$ holds"


def test_code_in_prose_stays_as_it_is():
    text = "`$a$` and ``[x](02_x.py) ` $b$``\n\n```\n$c$ [x](02_x.py)\n$$\n```\n\n- item\n\n  ```\n  $d\n  ```"
    assert prose_of(text) == text


def test_links_lead_from_the_page(first_page):
    targets = re.findall(r"\]\(([^)]+)\)", first_page)
    assert targets == [
        "02_second.md",
        "figures/01_line.svg",
        "figures/01_drawing.svg",
        "02_second.md#question",
        "../../scratchformer/nn/ops.py",
        "../../scratchformer/nn/ops.py",
        "https://example.org/",
        "../../lessons/01_first.py",
        "lab/01_first.md",
    ]
    assert lessons.target_from_page("#check") == "#check"
    assert lessons.target_from_page("lab/05_x.py#a-b") == "lab/05_x.md#a-b"
    assert lessons.target_from_page("support/recall.py") == "../../lessons/support/recall.py"
    assert lessons.target_from_page("05_x.py", "lessons/lab") == "05_x.md"
    assert lessons.target_from_page("../../docs/lessons/readers.md", "lessons/lab") == "../readers.md"


def test_details_have_blank_lines_inside_and_around(first_page):
    assert "\n\n<details><summary>Answer</summary>\n\nHidden *emphasis*.\n\n</details>\n\nShown.\n" in first_page


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("one\n\ncosts $5", "no maths begins or ends here"),
        ("one\n\ntext $$x$$ text", "no maths begins or ends here"),
        (r"one" "\n\n" r"$\operatorname{Var}$", "GitHub or the site cannot show"),
        ("| a |\n|---|\n| $|x|$ |", "ends a cell"),
        ("one\n\n<details><summary>How large is $x$?</summary>", "plain text"),
    ],
)
def test_prose_that_would_be_shown_wrongly_is_refused_with_its_line(text, complaint):
    with pytest.raises(LessonError, match=f"^lessons/01_x.py, line 12: .*{complaint}"):
        prose_of(text)


def test_signs_of_markdown_in_alternative_texts_are_escaped():
    assert lessons.image("01_x", "a [b] *c* d_k <e>") == r"![a \[b\] \*c\* d\_k \<e\>](figures/01_x.svg)"


def test_the_index_has_picture_title_question_and_minutes_by_parts(built):
    text = (built / "docs/lessons/README.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- made by `make lessons`") and "(readers.md)" in text
    assert text.index("## I · The whole game") < text.index("[01 ·") < text.index("## II · Why") < text.index("[02 ·")
    title = "[01 · The first, with $`x_1`$ and `code`](01_first.md) (side trip)<br>Does it work, with $`a_i * b_i`$?"
    assert f'| <img src="figures/01_line.svg" width="160" alt=""> | {title} | 6 + 20 |\n' in text
    assert "| | [02 · The second](02_second.md)<br>What is `x` in the end? | 1 + 10 |\n" in text


@pytest.mark.parametrize(
    "before, after, line, complaint",
    [
        ("# # 02", "# # 03", 2, "'# 02 · Title'"),
        ("end?**", "end.**", 2, "One question"),
        ("**What", f"**{100 * 'x'}", 2, "at most 100 characters"),
        ("*Needs", "*About 5 minutes. Needs", 2, "'*Needs"),
        ("x = 6", f"x = {'1' * 85}", 9, "89 columns of code"),
        ("multiply.*", "multiply.*\n#\n# <details><summary>A guess</summary>", 14, "a <details> or"),
        ("multiply.*", "multiply.*\n#\n# </details>", 14, "</details> too many"),
    ],
)
def test_a_lesson_of_another_shape_is_refused(tmp_path, before, after, line, complaint):
    path = tmp_path / "02_x.py"
    path.write_text(SECOND.replace(before, after), encoding="utf-8")
    with pytest.raises(LessonError, match=re.escape(complaint)) as refused:
        lessons.require_shape(path)
    assert refused.value.line == line


def test_details_may_hold_the_output_of_cells(tmp_path):
    path = tmp_path / "02_x.py"
    folded = "# <details><summary>A guess</summary>\n\n# %%\nprint(x)\n\n# %% [markdown]\n# So.\n# </details>"
    path.write_text(SECOND.replace("multiply.*", "multiply.*\n#\n" + folded), encoding="utf-8")
    lessons.require_shape(path)
    text = lessons.page(path, [[], [{"text": "6"}], [], [], []])
    unfolded = "```python\nprint(x)\n```\n\n```text\n6\n```\n\nSo."
    assert f"<details><summary>A guess</summary>\n\n{unfolded}\n\n</details>" in text


def test_minutes_are_those_of_words_code_output_and_figures():
    assert lessons.reading_seconds([85 * "word ", "a [b](c.md) $`d`$ — ![x](y)"]) == pytest.approx(60 + 60 * 4 / 85)
    code, output, formula = "```python\na = 1\n\nb = 2\n```", "```text\n1\n2\n```", "```math\nx\n```"
    assert lessons.reading_seconds([code, output, formula]) == 2 * 6 + 2 * 2.5 + 30
    assert lessons.reading_seconds([f"<details><summary>Code: Imports</summary>\n\n{code}\n\n</details>", code]) == (
        pytest.approx(2 * 1.5 + 2 * 6 + 60 * 2 / 85)
    )
    assert lessons.reading_seconds(["<!-- table -->\n\n| a |\n| --- |\n| b |", "![a](b.svg)"]) == 2 * 2.5 + 60
    assert lessons.about("00", ["word"]) == "About 1 minute"
    assert lessons.about("12", ["word"]) == "About 1 minute, and 30 for 2 functions and 1 hunt"


def test_a_quoted_function_is_that_of_the_file(tmp_path, capsys):
    source = f"{SECOND}\n# %%\nfrom support.lesson import quote\n\n# %%\nquote('softmax', 'attention')\n"
    path = lesson_file(tmp_path, source.replace("02 ·", "01 ·"))
    text = lessons.page(path, lessons.run_lesson(path, tmp_path / "run"))
    quoted = re.search("as in transformer.py</summary>\n\n```python\n(.+?)\n```\n\n</details>", text, re.DOTALL)[1]
    file = (lessons.ROOT / "lessons" / "transformer.py").read_text(encoding="utf-8")
    assert (
        "quote(" not in text and quoted.startswith("@differentiable\ndef softmax") and f"\n\n\n{quoted}\n\n\n" in file
    )
    quote("softmax", "attention")
    assert capsys.readouterr().out == f"softmax, attention, as in transformer.py:\n\n{quoted}\n"


# Figures --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plot():
    figure = Figure(figsize=(4, 3))
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], color="#00315c")
    left.plot([1, 0], color="#123456")
    left.grid(color="0.9")
    right.imshow([[0, 1], [2, 3]])
    right.text(0, 0, "on the image", color="white")
    right.set_title("beside it")
    return lesson_figures.svg(figure, 'a <b> & "c"')


def test_known_colours_and_greys_change_with_the_scheme_and_others_stay(plot):
    root = ElementTree.fromstring(plot)
    style = root.find("{*}style").text
    day, night = (dict(re.findall(r"--c(\w+):(#\w+);", part)) for part in style.split("@media"))
    assert set(day) == {"000000", "ffffff", "00315c", "e6e6e6"} and all(day[name] == f"#{name}" for name in day)
    assert night["000000"] == lesson_figures.INK and night["ffffff"] == lesson_figures.PAPER
    assert contrast(night["00315c"], night["ffffff"]) > 4.5
    assert "stroke: #123456" in plot and "stroke: #00315c" not in plot
    on_image = re.search(r'<g id="on-image-1-0" style="fill: #000000.*', plot, re.DOTALL)[0]
    assert "fill: #ffffff" in on_image.partition("</g>")[0]


def test_a_figure_says_what_it_shows_and_loads_nothing(plot):
    root = ElementTree.fromstring(plot)
    assert root.get("aria-labelledby") == root[0].get("id") and root[0].text == 'a <b> & "c"'
    assert "<metadata" not in plot and "<!DOCTYPE" not in plot
    assert all(link.startswith(("#", "data:")) for link in re.findall('href="([^"]*)', plot))
    drawing = lesson_figures.svg(Drawing(40, 30), "an empty drawing")
    assert ElementTree.fromstring(drawing)[0].text == "an empty drawing" and drawing.count("<title") == 1


def test_a_figure_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(lesson_figures, "LARGEST", 100)
    with pytest.raises(ValueError, match="more than 100: thin out"):
        lesson_figures.svg(Drawing(40, 30), "an empty drawing")


# Maths ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "latex",
    [
        r"\operatorname{Var}",
        r"\operatorname*{argmax}",
        r"\begin{align} a &= b \end{align}",
        r"a \\[4pt] b",
        r"\bm{x}",
        r"\mathbb{1}",
        r"\newcommand{\x}{1}",
        r"a & b",
        r"\frac{a",
        r"\left( a",
    ],
)
def test_maths_that_github_cannot_show_is_refused(latex):
    with pytest.raises(ValueError):
        lessons.require_maths(latex)


def test_maths_that_github_shows_passes():
    lessons.require_maths(
        r"\left\{ \begin{aligned} a &= \frac{b}{c} \\ \left. x \right|_y &\to \leftarrow \end{aligned} \right."
    )


def contrast(one, other):
    """WCAG's ratio of two colours #rrggbb, 1 to 21."""

    def luminance(colour):
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


# Building -------------------------------------------------------------------------------------------------------------


def change(root, name, before, after):
    path = root / name
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.slow
def test_pages_that_are_left_over_are_removed_and_missing_ones_are_built(own):
    docs = own / "docs" / "lessons"
    before = {path: path.read_bytes() for path in docs.rglob("*.*") if path.suffix == ".md"}
    (docs / "figures" / "01_line.svg").rename(docs / "figures" / "01_old.png")
    (docs / "02_second.md").rename(docs / "03_third.md")
    lessons.build(own)
    assert {path: path.read_bytes() for path in docs.rglob("*.*") if path.suffix == ".md"} == before
    assert (docs / "figures" / "01_line.svg").exists() and not (docs / "figures" / "01_old.png").exists()


@pytest.mark.slow
def test_only_some_lessons_are_built_and_the_others_stay(own):
    change(own, "lessons/01_first.py", "print(", "1 / 0\nprint(")
    change(own, "lessons/02_second.py", "x = 6", "x = 5")
    first = own / "docs/lessons/01_first.md"
    before = first.read_bytes()
    lessons.build(own, only=["02"])
    assert first.read_bytes() == before
    assert "35 " in (own / "docs/lessons/02_second.md").read_text(encoding="utf-8")


# Differences between pages --------------------------------------------------------------------------------------------


def printed(*lines):
    return "\n".join(["Prose with 100 words.", "```text", *lines, "```", "More prose."])


@pytest.mark.parametrize(
    "before, now",
    [
        ("loss 3.14 nats", "loss 3.2 nats"),
        ("error 1e-16", "error 4.2e-09"),
        ("error 0e+00", "error 3e-16"),
        ("[ 1.   -2.25]", "[ 1.02 -2.2 ]"),
        ("1,234 tokens", "1,200 tokens"),
        ("3.1x", "3.15x"),
        ("commit 20e387dce", "commit 20e387dce"),
        ("-0.5", "-0.51"),
        (
            "bias: backward -0.14, finite differences -0.14, relative error 3.1e-10 ok",
            "bias: backward 0.15, finite differences 0.15, relative error 1.2e-09 ok",
        ),
        ("Das Fest den den.   (yours may differ)", "Die Hochzeit   (yours may differ)"),
    ],
)
def test_what_depends_on_the_machine_and_small_differences_are_no_difference(before, now):
    assert list(differences(printed("a", before), printed("a", now))) == []


@pytest.mark.parametrize(
    "before, now",
    [
        ("loss 3.14 nats", "loss 3.4 nats"),
        ("error 1e-16", "error 1e-5"),
        ("-0.5", "0.5"),
        ("0", "0.1"),
        ("loss 3.14 nats", "cost 3.14 nats"),
        ("524,288", "624,288"),
        ("524,288", "524,288 524,288"),
        ("Das Fest   (yours may differ)", "Das Fest"),
        ("commit 12ab", "commit 13ab"),
        ("1.5", "nan"),
    ],
)
def test_other_numbers_and_words_are_a_difference(before, now):
    assert list(differences(printed("a", before), printed("a", now))) == [(4, before, now)]


def tables(kind, *cells):
    return f"{kind}\n\n| name | value | band |\n| --- | --: | --- |\n| {' | '.join(cells)} |\n\n| prose |\n|---|\n| 1 |"


def test_of_a_table_that_was_put_out_numbers_may_differ_a_little_and_of_measured_ones_any_value():
    def differ(kind, one, other):
        return bool(list(differences(tables(kind, *one), tables(kind, *other))))

    loss = ("loss 2", "3.14", "between 1 and 4")
    assert not differ(lessons.MEASURED, loss, ("loss 2", "equal", "between 1 and 4"))
    assert differ(lessons.MEASURED, loss, ("cost 2", "3.14", "between 1 and 4"))
    assert differ(lessons.MEASURED, loss, ("loss 2", "3.14", "between 1 and 4.1"))
    assert not differ(lessons.TABLE, loss, ("loss 2", "3.2", "between 1 and 4.1"))
    assert differ(lessons.TABLE, loss, ("loss 2", "3.5", "between 1 and 4"))
    assert differ(lessons.TABLE, loss, ("cost 2", "3.14", "between 1 and 4"))
    text = tables(lessons.TABLE, "a", "b", "c")
    assert list(differences(text, text.replace("| 1 |", "| 1.01 |"))) == [(9, "| 1 |", "| 1.01 |")]


def test_numbers_outside_of_output_must_be_equal():
    assert list(differences(printed("1"), printed("1").replace("100 words", "101 words"))) == [
        (1, "Prose with 100 words.", "Prose with 101 words.")
    ]
    assert list(differences("```python\n100\n```", "```python\n101\n```")) == [(2, "100", "101")]


def test_lines_that_came_or_went_are_a_difference():
    assert list(differences(printed("a", "b"), printed("a"))) == [(4, "b", "")]
    assert list(differences(printed("a"), printed("a", "b"))) == [(4, "", "b")]
