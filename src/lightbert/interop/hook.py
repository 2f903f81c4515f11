"""Makes transformers' auto classes find our model folders, without importing transformers.

`install` runs when lightbert is imported. If transformers' table of configs is there already, ours is entered at once;
otherwise as soon as somebody imports it. The models follow when the first of our configs is opened.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_TABLE = "transformers.models.auto.configuration_auto"


def install() -> None:
    """Enter our config into transformers' table, now or when the table is imported. Doing it twice changes nothing."""
    if _TABLE in sys.modules:
        _register()
    elif not any(isinstance(finder, _ImportWatcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportWatcher())


class _ImportWatcher(MetaPathFinder):
    """Finds nothing but the one module it waits for, which it finds as Python would, to act once it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _TABLE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            _register()

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    try:
        importlib.import_module("lightbert.interop.auto.registration")
    # Somebody is importing transformers, perhaps one that is too old or too new for us: that must go on working.
    except Exception as error:
        warnings.warn(f"transformers' auto classes will not find lightbert's models: {error}", stacklevel=2)
