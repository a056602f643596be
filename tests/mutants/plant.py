"""Plant one mutant in our code, in memory only, and run a module with it.

    python tests/mutants/plant.py softmax-divided-by-batch pytest tests/nn/test_gradients.py
    python tests/mutants/plant.py softmax-divided-by-batch scratchformer doctor

The files on disk do not change: Python compiles the patched text when the module is imported. Processes that the module
starts run the code on disk.
"""

import difflib
import runpy
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

from mutants import MUTANTS, ROOT, Mutant, Patch


class PatchedSource(SourceFileLoader):
    """Load a module from its patched text; no compiled file is read or written."""

    def __init__(self, name: str, path: str, patches: list[Patch]) -> None:
        super().__init__(name, path)
        self.patches = patches

    def path_stats(self, path):
        raise OSError("patched in memory: a compiled file would be out of date")

    def get_data(self, path):
        text = super().get_data(path).decode("utf-8")
        for patch in self.patches:
            text = patch.applied(text)
        return text.encode("utf-8")


class PatchingFinder:
    """Find modules as usual, but load those with patches through PatchedSource."""

    def __init__(self, patches: list[Patch]) -> None:
        self.patches = patches

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return None
        patches = [patch for patch in self.patches if ROOT / patch.file == Path(spec.origin).resolve()]
        if not patches:
            return None
        spec.loader = PatchedSource(name, spec.origin, patches)
        return spec


def plant(mutant: Mutant) -> None:
    """Patch the modules of the mutant when they are imported from now on.

    Raises RuntimeError if one of them is imported already.
    """
    imported = {getattr(module, "__file__", None) for module in tuple(sys.modules.values())}
    for patch in mutant.patches:
        if str(ROOT / patch.file) in imported:
            raise RuntimeError(f"{patch.file} is imported already: too late to plant {mutant.name}")
    sys.meta_path.insert(0, PatchingFinder(mutant.patches))


def mutant_named(name: str) -> Mutant:
    """The mutant of this name; without one, print the nearest names and exit with code 2."""
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    if name not in by_name:
        near = [other for other in by_name if name in other] or difflib.get_close_matches(name, by_name)
        print(f"no mutant {name!r} in tests/mutants/mutants.py; near it: {', '.join(near) or 'none'}", file=sys.stderr)
        sys.exit(2)
    return by_name[name]


def run(mutant: Mutant, module: str, arguments: list[str]) -> None:
    """Run `python -m module arguments` with the mutant planted."""
    plant(mutant)
    sys.argv = [module, *arguments]
    sys.path.insert(0, str(ROOT))  # as `python -m` does
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    _, name, module, *arguments = sys.argv
    run(mutant_named(name), module, arguments)
