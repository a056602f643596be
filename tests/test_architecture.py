"""Rooms import only from the floors below, and nobody reaches around: the house plan, read from the source."""

import ast
from pathlib import Path

import pytest

import scratchformer

HOUSE = Path(scratchformer.__file__).parent
OPEN_TO_ALL = {"__init__", "__main__"}  # the front doors of the package
MAY_IMPORT = {
    "errors": set(),
    "locks": {"errors"},
    "files": {"errors"},
    "config": {"errors"},
    "parallel": {"errors"},
    "nn": {"errors", "config"},
    "backends": {"errors", "config", "nn", "parallel"},
    "text": {"errors", "locks", "files"},
    "preparation": {"errors", "locks", "files", "text"},
    "decoding": {"errors", "config", "nn", "text"},
    "training": {"errors", "locks", "files", "config", "nn", "backends", "text", "preparation", "parallel", "decoding"},
    "experiments": {
        "errors",
        "locks",
        "files",
        "config",
        "nn",
        "backends",
        "text",
        "preparation",
        "parallel",
        "decoding",
        "training",
    },
    "doctor": {
        "errors",
        "locks",
        "files",
        "config",
        "nn",
        "backends",
        "text",
        "preparation",
        "parallel",
        "decoding",
        "training",
        "experiments",
    },
    "commands": {
        "errors",
        "config",
        "nn",
        "backends",
        "text",
        "preparation",
        "parallel",
        "decoding",
        "training",
        "experiments",
        "doctor",
    },
    "cli": {"", "errors", "config", "parallel", "commands"},
}
"""Room -> rooms on lower floors; "" is the package itself. Within a room everything may be imported."""

NEEDS_A_GPU = {"backends", "parallel"}
CASE_TABLES = {"gradient_cases.py"}
"""Modules that are tables; their rows name changes to a configuration, and `**changes` carries them to `replace`."""

NUMPY_GENERATORS = {"default_rng", "Generator", "PCG64", "Philox", "SeedSequence", "BitGenerator"}
"""What `numpy.random` may be asked for: everything else there shares one global state."""


def room_of(path):
    """scratchformer/nn/ops.py -> nn; scratchformer/cli.py -> cli"""
    return path.relative_to(HOUSE).with_suffix("").parts[0]


def violations(source, room):
    """What a module of this room does against the plan -> ["line 3: ...", ...]"""
    nodes = list(ast.walk(ast.parse(source)))
    has_stdlib_random = any("random" in imported_modules(node) for node in nodes)
    return [
        f"line {node.lineno}: {message}"
        for node in nodes
        for message in [
            *forbidden_imports(node, room),
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


def forbidden_imports(node, room):
    for name in imported_modules(node):
        package, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if package == "scratchformer" and room not in OPEN_TO_ALL and other not in MAY_IMPORT[room] | {room}:
            yield f"{room} imports {name}, which is not on a floor below"
        if package.startswith("cupy") and room not in NEEDS_A_GPU:
            yield f"{room} imports {name}; only {' and '.join(sorted(NEEDS_A_GPU))} may"
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


MODULES = sorted(path for path in HOUSE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_every_module_keeps_to_the_plan(path):
    found = violations(path.read_text(encoding="utf-8"), room_of(path))
    assert [line for line in found if not (path.name in CASE_TABLES and "takes **changes" in line)] == []


def test_every_room_is_on_the_plan():
    assert {room_of(path) for path in MODULES} <= MAY_IMPORT.keys() | OPEN_TO_ALL


def test_the_plan_has_no_circles():
    """Each room may import only rooms that stand before it in the plan."""
    rooms = list(MAY_IMPORT)
    for index, room in enumerate(rooms):
        assert MAY_IMPORT[room] <= {"", *rooms[:index]}


@pytest.mark.parametrize(
    "room, source",
    [
        ("nn", "from scratchformer.training import loop"),
        ("nn", "from scratchformer.text.tokenizer import PAD"),
        ("nn", "from scratchformer import decoding"),
        ("nn", "def f():\n    import scratchformer.backends.cpu"),
        ("text", "from scratchformer.config import Config"),
        ("text", "from scratchformer import nn"),
        ("decoding", "from scratchformer.training.run import load_run"),
        ("training", "from scratchformer.experiments import figures"),
        ("experiments", "from scratchformer import doctor"),
        ("config", "from scratchformer.nn.ops import PAD"),
        ("errors", "from scratchformer import config"),
        ("nn", "from scratchformer import Transformer"),
        ("nn", "import cupy"),
        ("training", "from cupy.cuda import Device"),
        ("training", "import cupy as xp"),
        ("nn", "np.random.seed(0)"),
        ("nn", "x = numpy.random.randn(3)"),
        ("nn", "f(np.random.normal)"),
        ("nn", "from numpy.random import rand"),
        ("text", "import random\nrandom.shuffle(x)"),
        ("text", "from random import choice"),
        ("nn", "def forward(x, **options): pass"),
        ("nn", "class A:\n    def forward(self, **options): pass"),
    ],
)
def test_a_planted_violation_is_found(room, source):
    assert len(violations(source, room)) == 1


@pytest.mark.parametrize(
    "room, source",
    [
        ("nn", "from scratchformer.config import ModelConfig\nfrom scratchformer.nn.ops import PAD"),
        ("text", "import random\nrng = random.Random(0)\nrng.shuffle(x)"),
        ("nn", "init: np.random.Generator = np.random.default_rng(0)\ninit.normal()"),
        ("backends", "import cupy"),
        ("parallel", "def start():\n    from cupy.cuda import nccl"),
        ("__init__", "from scratchformer.training.run import load_run"),
        ("cli", "from scratchformer import config as configs"),
        ("nn", "def _helper(**names): pass\ndef public(*arrays, out=None): f(**names)"),
    ],
)
def test_what_is_allowed_is_not_found(room, source):
    assert violations(source, room) == []
