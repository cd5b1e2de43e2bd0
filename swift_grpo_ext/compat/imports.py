"""Runs a function when a module has been imported, so that patching it does not import it."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[], None]]] = {}


class _Watcher(MetaPathFinder):
    """Finds nothing itself: lets the other finders find, and adds what is to run after the module's code."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Spec of a module that is waited for, with a loader that runs the waiting functions at its end."""
        if fullname not in _waiting:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Only now: who asks for the spec alone, to see whether a package is installed, imports nothing.
            for action in _waiting.pop(fullname, ()):
                action()

        loader.exec_module = exec_module
        return spec


_watcher = _Watcher()


def when_imported(module: str, action: Callable[[], None]) -> None:
    """Run `action` when `module` has been imported to its end; at once if it is there already."""
    if module in sys.modules:
        action()
        return
    if _watcher not in sys.meta_path:
        sys.meta_path.insert(0, _watcher)
    _waiting.setdefault(module, []).append(action)
