"""Each lesson runs, measures what it says, and is what its committed page shows; its links lead somewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lesson_run import cells_of, in_project
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin
from page_differences import differences

import lessons
from exercises.catalogue import FUNCTIONS
from exercises.hunts import HUNTS

ROOT = lessons.ROOT
DOCS = ROOT / "docs" / "lessons"
LESSONS = {path.stem: path for path in lessons.lessons_of(ROOT)}
YOURS = FUNCTIONS | HUNTS
SOURCES = {in_project(path): path for path in [*LESSONS.values(), *lessons.labs_of(ROOT)]}


@pytest.fixture(params=LESSONS)
def lesson(request):
    return LESSONS[request.param]


@pytest.fixture(params=SOURCES)
def source(request):
    """A lesson, or lab notes."""
    return SOURCES[request.param]


def test_there_are_lessons():
    assert "01" in {path.name[:2] for path in LESSONS.values()}
    assert len({path.name[:2] for path in LESSONS.values()}) == len(LESSONS), "two lessons have one number"


# Running --------------------------------------------------------------------------------------------------------------

NO_NETWORK = """import socket

def refuse(*arguments, **options):
    raise OSError("a lesson uses no network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


@pytest.fixture
def no_network(tmp_path, monkeypatch):
    """Processes that are started now cannot use the network."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.fixture
def elsewhere(tmp_path):
    """elsewhere(lesson) -> a copy that is alone in its directory, but for its lab notes"""

    def copy(lesson):
        (tmp_path / "lessons" / "lab").mkdir(parents=True)
        lab = lessons.lab_of(lesson)
        for path in (lab, lab.with_name("course.py")) if lab.exists() else ():
            shutil.copy(path, tmp_path / "lessons" / "lab")
        return Path(shutil.copy(lesson, tmp_path / "lessons"))

    return copy


def files_in(directory):
    return {path for path in directory.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_lesson_and_its_lab_notes_run_without_a_network_and_their_pages_are_current(
    lesson, no_network, elsewhere, tmp_path
):
    """Warnings are errors. Nothing is written but the figures and what `run_lesson` itself writes."""
    path, folder = elsewhere(lesson), tmp_path / "run"
    before = files_in(path.parent)
    pages = lessons.made(path, folder)
    figures = {path.name for path in files_in(folder) if path.name != "run.json"}
    assert figures and {Path(name).suffix for name in figures} == {".svg"} and files_in(path.parent) == before
    for name, text in pages.items():
        committed = (DOCS / name).read_text(encoding="utf-8")
        assert list(differences(committed, text)) == [], "make lessons"
    assert {path.name for path in DOCS.glob(f"figures/{lesson.name[:3]}*")} == figures, "make lessons"


def test_a_lesson_runs_as_a_script(no_network, elsewhere, monkeypatch):
    """As a learner starts it; all lessons run cell by cell in the test above."""
    path = elsewhere(LESSONS["01_backprop"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lessons"), prepend=os.pathsep)
    ended = run_script(path)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    shown = re.findall(r"^figure: (.+)$", ended.stdout, re.MULTILINE)
    assert sorted(shown) == sorted(f"out/{path.name}" for path in files_in(path.parent / "out")) != []


def run_script(path):
    """Run a script in its directory, quickly, with warnings as errors."""
    environment = os.environ | {"MPLBACKEND": "Agg", "SCRATCHFORMER_QUICK": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", path.name]
    return subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=lessons.SECONDS
    )


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("import warnings; warnings.warn('beware')", "UserWarning: beware"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')", "a lesson uses no network"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "a lesson uses no network"),
    ],
)
def test_a_script_that_warns_or_uses_the_network_fails(line, complaint, no_network, tmp_path):
    (tmp_path / "script.py").write_text(line, encoding="utf-8")
    ended = run_script(tmp_path / "script.py")
    assert ended.returncode == 1 and complaint in ended.stderr


def test_the_table_of_contents_is_current():
    assert (DOCS / "README.md").read_text(encoding="utf-8") == lessons.index(lessons.committed_pages(DOCS))


# References -----------------------------------------------------------------------------------------------------------


def prose_of(path):
    return "\n\n".join(cell.source for cell in cells_of(path) if cell.is_prose)


def test_a_lesson_has_the_shape_of_the_others(source):
    lessons.require_shape(source)


def anchors_of(text):
    tokens = MarkdownIt().use(anchors_plugin, max_level=4).parse(text)
    return {token.attrs["id"] for token in tokens if token.type == "heading_open"}


def broken_links(path):
    """Targets inside the project that do not exist, with their anchors."""
    broken = []
    for piece in lessons.PIECE.finditer(prose_of(path)):
        file, _, anchor = (piece["target"] or "").partition("#")
        if not piece["target"] or re.match("https?:", file):
            continue
        linked = (path.parent / file).resolve() if file else path
        lesson = linked.parents[1] / linked.name  # each has a page of lab notes, from a script or without
        if not linked.exists() and not (linked.parent.name == "lab" and lesson.exists() and not anchor):
            broken.append(piece["target"])
        elif anchor:
            is_lesson = re.match(r"\d\d_\w+\.py", linked.name)
            text = prose_of(linked) if is_lesson else linked.read_text(encoding="utf-8")
            broken += [piece["target"]] * (anchor not in anchors_of(text))
    return broken


def test_links_lead_somewhere(source):
    assert broken_links(source) == []


def test_broken_links_are_seen(tmp_path):
    (tmp_path / "lab").mkdir()
    path = tmp_path / "01_x.py"
    path.write_text(
        "# %% [markdown]\n# ## A b\n# [a](#a-b) [b](#c) [c](01_x.py#a-b) [d](02_y.py) `[f](g.md)`\n"
        "# [e](z.md) [h](https://example.org/#x) [i](01_x.py#d) [j](lab/01_x.py) [k](lab/02_x.py) [l](lab/01_x.py#m)\n",
        encoding="utf-8",
    )
    assert broken_links(path) == ["#c", "02_y.py", "z.md", "01_x.py#d", "lab/02_x.py", "lab/01_x.py#m"]


def test_a_lesson_asks_for_its_functions_and_hunts(lesson):
    asked = re.search(r"^\*\*Yours:\*\* .+?(?=\n\n|\Z)", prose_of(lesson), re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(\w+)`", asked[0]) if asked else []
    assert sorted(named) == sorted(each.name for each in YOURS.values() if each.lesson == lesson.name[:2])


def test_commands_of_a_page_name_what_there_is(source):
    commands = re.findall(r"`scratchformer\s+learn\s+(?:check|hint|show)\s+([^`]+)`", prose_of(source))
    lessons_of_yours = {each.lesson for each in YOURS.values()}
    assert {name for names in commands for name in names.split()} <= {*YOURS, *lessons_of_yours}


def test_a_page_is_read_in_one_evening():
    minutes = {
        name: int(lessons.PAGE_HEADER.search(text)["reading"]) for name, text in lessons.committed_pages(DOCS).items()
    }
    assert len(minutes) == len(LESSONS) and {name: time for name, time in minutes.items() if time > 40} == {}
