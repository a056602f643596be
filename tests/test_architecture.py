"""Each package imports only packages that come before it in the plan, and nothing uses a global random state."""

import ast
from pathlib import Path

import pytest

import scratchformer

PACKAGE = Path(scratchformer.__file__).parent
OPEN_TO_ALL = {"__init__", "__main__"}  # modules at the top, which may import everything
UP_TO_DECODING = set("errors limits progress files config parallel nn backends text preparation decoding".split())
MAY_IMPORT = {
    "errors": set(),
    "limits": set(),
    "progress": set(),
    "files": {"errors"},
    "config": {"errors"},
    "parallel": {"errors", "limits"},
    "nn": {"errors", "limits", "config"},
    "backends": {"errors", "config", "nn", "parallel"},
    "text": {"errors", "files"},
    "preparation": {"errors", "progress", "files", "parallel", "text"},
    "decoding": {"errors", "config", "parallel", "nn", "backends", "text"},
    "training": UP_TO_DECODING,
    "tasks": UP_TO_DECODING | {"training"},
    "api": UP_TO_DECODING | {"training", "tasks"},
    "experiments": UP_TO_DECODING | {"training", "tasks"},
    "explorer": UP_TO_DECODING | {"training", "tasks", "experiments"},
    "doctor": UP_TO_DECODING | {"training", "tasks", "experiments"},
    "commands": UP_TO_DECODING - {"files"} | {"training", "tasks", "experiments", "explorer", "doctor"},
    "cli": {"", "errors", "config", "parallel", "commands"},
}
"""Package or module -> those it may import, besides itself; "" is `scratchformer` itself."""

MAY_IMPORT_CUPY = ("backends/cuda", "parallel")
CASE_TABLES = {"gradient_cases.py"}
"""Modules that are tables; their rows name changes to a configuration, and `**changes` carries them to `replace`."""

NUMPY_GENERATORS = {"default_rng", "Generator", "PCG64", "Philox", "SeedSequence", "BitGenerator"}
"""Names that may be taken from `numpy.random`: everything else there shares one global state."""


def part_of(path):
    """scratchformer/nn/ops.py -> nn; scratchformer/cli.py -> cli"""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def violations(source, part, cupy=False):
    """Violations of the plan in a module of this part -> ["line 3: ...", ...]; cupy: may it import CuPy?"""
    nodes = list(ast.walk(ast.parse(source)))
    has_stdlib_random = any("random" in imported_modules(node) for node in nodes)
    return [
        f"line {node.lineno}: {message}"
        for node in nodes
        for message in [
            *forbidden_imports(node, part, cupy),
            *global_randomness(node, has_stdlib_random),
            *open_signature(node),
        ]
    ]


def imported_modules(node):
    """The dotted names that an import statement reads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def forbidden_imports(node, part, cupy):
    for name in imported_modules(node):
        package, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if package == "scratchformer" and part not in OPEN_TO_ALL and other not in MAY_IMPORT[part] | {part}:
            yield f"{part} imports {name}, which does not come before it in the plan"
        if package.startswith("cupy") and not cupy:
            yield f"{part} imports {name}; only {' and '.join(MAY_IMPORT_CUPY)} may"
        if name.startswith("numpy.random.") and name.split(".")[2] not in NUMPY_GENERATORS:
            yield f"{name} has a global state"
        if name.startswith("random.") and name != "random.Random":
            yield f"{name} has a global state"


def global_randomness(node, has_stdlib_random):
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np" | "numpy" | "xp"), attr="random"), attr=name) if (
            name not in NUMPY_GENERATORS
        ):
            yield f"np.random.{name} has a global state"
        case ast.Attribute(value=ast.Name(id="random"), attr=name) if has_stdlib_random and name != "Random":
            yield f"random.{name} has a global state"


def open_signature(node):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.kwarg and not node.name.startswith("_"):
        yield f"{node.name} takes **{node.args.kwarg.arg}"


MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_keeps_to_the_plan(path):
    relative = path.relative_to(PACKAGE).as_posix()
    found = violations(path.read_text(encoding="utf-8"), part_of(path), relative.startswith(MAY_IMPORT_CUPY))
    assert [line for line in found if not (path.name in CASE_TABLES and "takes **changes" in line)] == []


def test_every_part_is_in_the_plan():
    assert {part_of(path) for path in MODULES} <= MAY_IMPORT.keys() | OPEN_TO_ALL


def test_the_plan_has_no_circles():
    """Each part may import only parts that come before it."""
    parts = list(MAY_IMPORT)
    for index, part in enumerate(parts):
        assert MAY_IMPORT[part] <= {"", *parts[:index]}


@pytest.mark.parametrize("package", ["training", "tasks", "experiments"])
def test_no_module_imports_itself_through_others(package):
    """Imports for annotations only count, too."""
    modules = {path.stem: path.read_text(encoding="utf-8") for path in (PACKAGE / package).glob("*.py")}
    arrows = {
        name: {
            rest.split(".")[0]
            for node in ast.walk(ast.parse(source))
            for module in imported_modules(node)
            if (rest := module.removeprefix(f"scratchformer.{package}.")) != module
        }
        & modules.keys()
        for name, source in modules.items()
    }
    while leaves := [name for name, imported in arrows.items() if not imported & arrows.keys()]:
        for name in leaves:
            del arrows[name]
    assert arrows == {}


PLANTED = [
    ("nn", "from scratchformer.training import loop"),
    ("nn", "from scratchformer import decoding"),
    ("nn", "def f():\n    import scratchformer.backends.cpu"),
    ("text", "from scratchformer.config import Config"),
    ("training", "from scratchformer.tasks.task import task_named"),
    ("nn", "from scratchformer import Transformer"),
    ("nn", "import cupy"),
    ("training", "from cupy.cuda import Device"),
    ("nn", "np.random.seed(0)"),
    ("nn", "x = numpy.random.randn(3)"),
    ("nn", "from numpy.random import rand"),
    ("text", "import random\nrandom.shuffle(x)"),
    ("text", "from random import choice"),
    ("nn", "class A:\n    def forward(self, **options): pass"),
]
ALLOWED = [
    ("nn", "from scratchformer.config import ModelConfig\nfrom scratchformer.nn.ops import PAD"),
    ("text", "import random\nrng = random.Random(0)\nrng.shuffle(x)"),
    ("nn", "init: np.random.Generator = np.random.default_rng(0)\ninit.normal()"),
    ("__init__", "from scratchformer.training.run import load_run"),
    ("cli", "from scratchformer import config as configs"),
    ("nn", "def _helper(**names): pass\ndef public(*arrays, out=None): f(**names)"),
]


@pytest.mark.parametrize(
    "part, source, n_found", [*((*planted, 1) for planted in PLANTED), *((*allowed, 0) for allowed in ALLOWED)]
)
def test_a_planted_violation_is_found_and_nothing_else(part, source, n_found):
    assert len(violations(source, part)) == n_found
