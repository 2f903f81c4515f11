"""Register our models with transformers' auto classes, without importing transformers.

`install` runs when lightbert is imported. If transformers is already imported, our config is registered immediately,
otherwise when transformers is imported. The models are registered when the first of our configs is opened.
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
    """Register our config with transformers, now or when transformers is imported. Idempotent."""
    if _TABLE in sys.modules:
        _register()
    elif not any(isinstance(finder, _ImportWatcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportWatcher())


class _ImportWatcher(MetaPathFinder):
    """An import finder that registers our config after `transformers.models.auto.configuration_auto` is imported."""

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
        config = importlib.import_module("lightbert.interop.auto_config").LightbertConfig
        config.on_open = lambda: importlib.import_module("lightbert.interop.auto_models")
    # An incompatible version of transformers must remain importable.
    except Exception as error:
        warnings.warn(f"lightbert's models are not registered with transformers' auto classes: {error}", stacklevel=2)
