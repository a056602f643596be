"""Each lesson runs, measures what it says, and is what its committed page shows; its links lead somewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from html_page import assert_well_made
from lesson_run import cells_of
from lesson_site import renderer, write_site

import lessons

ROOT = lessons.ROOT
DOCS = ROOT / "docs" / "lessons"
LESSONS = {path.stem: path for path in lessons.lessons_of(ROOT)}


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
    """elsewhere(lesson) -> a copy that is alone in its directory"""

    def copy(lesson):
        (tmp_path / "lessons").mkdir()
        return Path(shutil.copy(lesson, tmp_path / "lessons"))

    return copy


def names_in(directory):
    return {path.name for path in directory.iterdir()}


@pytest.mark.slow
def test_a_lesson_runs_without_a_network_and_its_page_is_what_it_says(lesson, no_network, elsewhere, tmp_path):
    """Warnings are errors. Nothing is written but the figures and what `run_lesson` itself writes."""
    path, folder = elsewhere(lesson), tmp_path / "run"
    outputs = lessons.run_lesson(path, folder)
    figures = {f"{item['figure']}.png" for items in outputs for item in items if "figure" in item}
    assert figures and names_in(folder) == {"run.json", *figures} and names_in(path.parent) == {path.name}
    page = (DOCS / f"{lesson.stem}.md").read_text(encoding="utf-8")
    assert list(lessons.differences(page, lessons.page(path, outputs))) == [], "make lessons"
    assert {path.name for path in DOCS.glob(f"figures/{lesson.name[:3]}*")} == figures, "make lessons"


def test_a_lesson_runs_as_a_script(no_network, elsewhere, monkeypatch):
    """As a learner starts it; all lessons run cell by cell in the test above."""
    path = elsewhere(LESSONS["04_soft_lookup"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lessons"), prepend=os.pathsep)
    ended = run_script(path)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    shown = re.findall(r"^figure: (.+)$", ended.stdout, re.MULTILINE)
    assert shown and names_in(path.parent) == {path.name, "out"}
    assert sorted(shown) == sorted(f"out/{name}" for name in names_in(path.parent / "out"))


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


@pytest.mark.slow
def test_the_table_of_contents_is_current():
    assert (DOCS / "README.md").read_text(encoding="utf-8") == lessons.index(ROOT), "make lessons"


@pytest.mark.slow
def test_the_site_of_the_committed_pages_is_well_made(tmp_path):
    write_site(DOCS, tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {f"{name}.html" for name in LESSONS} | {"index.html"} == {name for name in names if name.endswith(".html")}
    for path in tmp_path.glob("*.html"):
        assert_well_made(path.read_text(encoding="utf-8"), names)


# References -----------------------------------------------------------------------------------------------------------


def prose_of(path):
    return "\n\n".join(cell.source for cell in cells_of(path) if cell.is_prose)


def sections_of(path):
    """[(heading, text below it)] of the second level."""
    parts = re.split(r"^## (.+)$", re.sub(r"^```.*?^```$", "", prose_of(path), flags=re.M | re.S), flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def test_details_open_and_close_in_one_cell(lesson):
    for cell in cells_of(lesson):
        assert not cell.is_prose or re.findall("</?details>", cell.source) == [
            "<details>",
            "</details>",
        ] * cell.source.count("<details>"), f"line {cell.line}"


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


@pytest.fixture(scope="module")
def exercises():
    from exercises.catalogue import EXERCISES

    return list(EXERCISES)


def test_a_lesson_names_its_exercises_and_they_exist(lesson, exercises):
    text = "".join(text for heading, text in sections_of(lesson) if "exercise" in heading.lower())
    named = set(re.findall(r"\b\d\d_[a-z0-9_]+\b(?!\.)", text))
    assert named == {name for name in exercises if name[:2] == lesson.name[:2]} != set()
