"""Each lesson runs as it stands, measures what it says, keeps to the form, and is what its committed page shows."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest
from html_page import assert_well_made
from lesson_run import cells_of
from lesson_site import renderer, write_site

import lessons

ROOT = lessons.ROOT
LESSONS = {path.stem: path for path in lessons.lessons_of(ROOT)}
SECTIONS = [
    "question",
    "picture",
    "equation",
    "forward",
    "backward",
    "check",
    "experiment",
    "claim",
    "paper",
    "exercise",
    "next",
]
"""A word of each second-level heading, in order."""

OPTIONAL = {"claim"}
BANNED = [
    "!",
    "simply",
    "obviously",
    "just",
    "trivial",
    "trivially",
    "of course",
    "needless to say",
    "as everyone knows",
    "it is easy to",
    "it is clear that",
]
"""An exclamation mark, and words that tell the reader how easy they should find it. `just` is never needed."""


@pytest.fixture(params=LESSONS)
def lesson(request):
    return LESSONS[request.param]


def test_there_are_lessons():
    assert "01" in {path.name[:2] for path in LESSONS.values()}
    assert len({path.name[:2] for path in LESSONS.values()}) == len(LESSONS), "two lessons have one number"


# Running --------------------------------------------------------------------------------------------------------------

NO_NETWORK = """import socket

def refuse(*arguments, **options):
    raise OSError("a lesson uses no network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


def run_script(script, folder):
    """Run a script in this folder, quickly, without a network, with warnings as errors."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    environment = os.environ | {
        "MPLBACKEND": "Agg",
        "SCRATCHFORMER_QUICK": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(folder / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=lessons.SECONDS,
    )


@pytest.mark.slow
def test_a_lesson_runs_as_a_script_anywhere_and_leaves_nothing_but_its_figures(lesson, tmp_path):
    shutil.copyfile(lesson, tmp_path / lesson.name)
    ended = run_script(lesson.name, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    shown = re.findall(r"^figure: (.+)$", ended.stdout, re.MULTILINE)
    assert shown and {path.name for path in tmp_path.iterdir()} == {lesson.name, "site", "out"}
    assert sorted(shown) == sorted(f"out/{path.name}" for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("import warnings; warnings.warn('beware')", "UserWarning: beware"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')", "a lesson uses no network"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "a lesson uses no network"),
    ],
)
def test_a_script_that_warns_or_uses_the_network_fails(line, complaint, tmp_path):
    (tmp_path / "script.py").write_text(line, encoding="utf-8")
    ended = run_script("script.py", tmp_path)
    assert ended.returncode == 1 and complaint in ended.stderr


@pytest.mark.slow
def test_the_committed_pages_are_what_the_lessons_say():
    assert lessons.check(ROOT) == [], "make lessons"


def test_the_site_of_the_committed_pages_is_well_made(tmp_path):
    write_site(ROOT / "docs" / "lessons", tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {f"{name}.html" for name in LESSONS} | {"index.html"} == {name for name in names if name.endswith(".html")}
    for path in tmp_path.glob("*.html"):
        assert_well_made(path.read_text(encoding="utf-8"), names)


# Form -----------------------------------------------------------------------------------------------------------------


def prose_of(path):
    return "\n\n".join(cell.source for cell in cells_of(path) if cell.is_prose)


def without_code(text):
    """Prose without code, maths, targets of links and tags."""
    return re.sub(r"<[^>]*>", " ", lessons.PIECE.sub(lambda piece: " " if piece["details"] is None else piece[0], text))


def sections_of(path):
    """[(heading, text below it)] of the second level."""
    parts = re.split(r"^## (.+)$", re.sub(r"^```.*?^```$", "", prose_of(path), flags=re.M | re.S), flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def out_of_order(headings):
    """The sections that do not come, or come before those that should precede them."""
    missing, remaining = [], [heading.lower() for heading in headings]
    for word in SECTIONS:
        at = next((i for i, heading in enumerate(remaining) if word in heading), None)
        if at is not None:
            remaining = remaining[at + 1 :]
        elif word not in OPTIONAL:
            missing.append(word)
    return missing


def test_sections_out_of_order_are_seen():
    headings = [
        "Question",
        "The idea in one picture",
        "The equation",
        "Forward",
        "Backward",
        "Check",
        "Experiment",
        "Check the claim",
        "Paper and code",
        "Exercises",
        "Next",
    ]
    assert out_of_order(headings) == [] == out_of_order([heading for heading in headings if "claim" not in heading])
    assert out_of_order(headings[:5] + headings[6:]) == ["experiment"]  # "Check the claim" is no check
    assert out_of_order(headings[::-1]) != []


def test_a_lesson_has_its_sections_in_order(lesson):
    headings = [heading for heading, _ in sections_of(lesson)]
    assert out_of_order(headings) == [] and headings[-1] == "Next"


def test_a_lesson_begins_with_its_number_title_reading_time_and_needs(lesson):
    first = cells_of(lesson)[0]
    assert first.is_prose and first.source.startswith(f"# {lesson.name[:2]} · ")
    assert re.search(r"\d+ minutes.*You\s+need:.*You\s+will\s+have:", first.source, re.DOTALL)


def test_a_lesson_is_plain_python(lesson):
    source = lesson.read_text(encoding="utf-8")
    ast.parse(source)
    assert not re.search(r"get_ipython|plt\.show|savefig|matplotlib\.use", source)


def calls(path, name):
    return [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name
    ]


def test_every_figure_has_its_alternative_text(lesson):
    figures = calls(lesson, "show")
    assert figures
    for call in figures:
        assert len(call.args) == 3 or {keyword.arg for keyword in call.keywords} & {"alt"}, ast.unparse(call)


def test_every_band_has_two_finite_ends_in_order(lesson):
    """Equal ends are an exact number."""
    measured = calls(lesson, "measure")
    assert measured
    for call in measured:
        ends = [*call.args[2:], *(keyword.value for keyword in call.keywords if keyword.arg in ("lo", "hi"))]
        assert not any(re.search(r"\binf\b", ast.unparse(end)) for end in ends), ast.unparse(call)
        numbers = [ast.literal_eval(end) for end in ends if is_literal(end)]
        assert len(numbers) < 2 or numbers[0] <= numbers[1], ast.unparse(call)


def is_literal(node):
    return not any(isinstance(part, ast.Name | ast.Call | ast.BinOp) for part in ast.walk(node))


def test_the_prose_does_not_tell_the_reader_how_easy_it_is(lesson):
    text = " ".join(without_code(prose_of(lesson)).lower().split())
    found = [word for word in BANNED if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
    assert found == []


def test_details_open_and_close_in_one_cell(lesson):
    for cell in cells_of(lesson):
        assert not cell.is_prose or re.findall("</?details>", cell.source) == [
            "<details>",
            "</details>",
        ] * cell.source.count("<details>"), f"line {cell.line}"


# References -----------------------------------------------------------------------------------------------------------


def anchors_of(text):
    return {token.attrs["id"] for token in renderer(ROOT).parse(text) if token.type == "heading_open"}


def broken_links(path):
    """Targets inside the project that do not exist, with their anchors."""
    broken = []
    for piece in lessons.PIECE.finditer(prose_of(path)):
        file, _, anchor = (piece["target"] or "").partition("#")
        if not piece["target"] or re.match("https?:", file):
            continue
        linked = path.parent / file if file else path
        if not linked.exists():
            broken.append(piece["target"])
        elif anchor:
            text = (
                prose_of(linked)
                if linked.suffix == ".py" and linked.parent == path.parent
                else linked.read_text(encoding="utf-8") if linked.suffix == ".md" else ""
            )
            broken += [piece["target"]] * (anchor not in anchors_of(text))
    return broken


def test_links_lead_somewhere(lesson):
    assert broken_links(lesson) == []


def test_broken_links_are_seen(tmp_path):
    path = tmp_path / "01_x.py"
    path.write_text(
        "# %% [markdown]\n# ## A b\n# [a](#a-b) [b](#c) [c](01_x.py#a-b) [d](02_y.py) `[f](g.md)`\n"
        "# [e](z.md) [h](https://example.org/#x) [i](01_x.py#d)\n",
        encoding="utf-8",
    )
    assert broken_links(path) == ["#c", "02_y.py", "z.md", "01_x.py#d"]


LESSON_NUMBERS = re.compile(r"\b[Ll]essons?\s+(\d\d?(?:(?:,|\s+and|\s+or|\s+to|–|-)\s*\d\d?)*)")


def later_lessons(path, exercises):
    """Later lessons that come up before the section Next: as `lesson 06`, by a link, by the id of an exercise."""
    text = path.read_text(encoding="utf-8").split("\n# ## Next\n")[0].replace("\n# ", "\n")
    names = [number for numbers in LESSON_NUMBERS.findall(text) for number in re.findall(r"\d+", numbers)]
    names += re.findall(r"\]\((\d\d_\w+)\.py", text)
    names += [name for name in exercises if re.search(rf"\b{name}\b", text)]
    return [name for name in names if int(name[:2]) > int(path.name[:2])]


def test_forward_references_are_seen(tmp_path):
    path = tmp_path / "05_x.py"
    path.write_text(
        "# %% [markdown]\n# Lesson 04, lesson\n# 06, lessons 03, 05 and 07, [x](08_y.py), `09_z`, 10_no\n"
        "# %%\nx = 1  # see lesson 11\n# %% [markdown]\n# ## Next\n# lesson 12\n",
        encoding="utf-8",
    )
    assert later_lessons(path, ["09_z", "04_z"]) == ["06", "07", "11", "08_y", "09_z"]


@pytest.fixture(scope="module")
def exercises():
    from exercises.catalogue import EXERCISES

    return list(EXERCISES)


def test_a_lesson_needs_no_later_one(lesson, exercises):
    assert later_lessons(lesson, exercises) == []


def test_a_lesson_names_its_exercises_and_they_exist(lesson, exercises):
    text = "".join(text for heading, text in sections_of(lesson) if "exercise" in heading.lower())
    named = set(re.findall(r"\b\d\d_[a-z0-9_]+\b(?!\.)", text))
    assert named == {name for name in exercises if name[:2] == lesson.name[:2]} != set()
