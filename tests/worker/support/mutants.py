"""The worker with a mistake in it, to show that the simulation would see the mistake. mistakes.py has the list."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from worker.runtime.loop import Worker

DECIDING = ("worker.checkpoint", "worker.commit", "worker.runtime", "worker.state", "worker.task")
"""Packages whose modules decide: a mistake may be in any of them, and all of them are loaded anew around it."""


@dataclass(frozen=True)
class Mutant:
    """Texts that a module holds once each, and what a mistake writes in their place."""

    module: str
    edits: tuple[tuple[str, str], ...]

    def worker(self) -> type[Worker]:
        """The worker of a core of its own that has the mistake."""
        originals = {name: module for name, module in sys.modules.items() if _decides(name)}
        finder = _Finder(self)
        _forget(originals)
        sys.meta_path.insert(0, finder)
        try:
            mutated: type[Worker] = importlib.import_module("worker.runtime.loop").Worker
            assert finder.was_asked, f"nothing imports {self.module}: no mistake in it would show"
            return mutated
        finally:
            sys.meta_path.remove(finder)
            _forget([name for name in sys.modules if _decides(name)])
            sys.modules.update(originals)
            for package in DECIDING:  # `import worker.task` binds the name in `worker`, too
                setattr(sys.modules["worker"], package.rpartition(".")[2], originals[package])

    def applied_to(self, source: str) -> str:
        """The source of the module with the mistake."""
        for text, mistake in self.edits:
            assert source.count(text) == 1, f"there is no one place any more in {self.module} that says {text!r}"
            source = source.replace(text, mistake)
        return source


class _Finder:
    """Finds the module with the mistake; all others are left to who comes next."""

    def __init__(self, mutant: Mutant) -> None:
        self.was_asked = False
        self._mutant = mutant

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._mutant.module:
            return None
        self.was_asked = True
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(self._mutant, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the source with the mistake, past the cache of bytecode."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        with open(self.path, encoding="utf-8") as file:
            source = self._mutant.applied_to(file.read())
        return compile(source, f"<{fullname} with a mistake>", "exec")


def _decides(name: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in DECIDING)


def _forget(names: Sequence[str] | dict[str, ModuleType]) -> None:
    for name in names:
        del sys.modules[name]
