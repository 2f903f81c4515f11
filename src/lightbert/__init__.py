"""Small, fast text encoders in which convolution and attention work together.

`build`, `load`, `save` and `presets` are about models; `prepare`, `pretrain`, `distill`, `finetune` and `evaluate` are
the jobs of the command line. torch is imported when one of them is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from lightbert.interop import hook

if TYPE_CHECKING:
    from lightbert.commands.jobs import distill, evaluate, finetune, prepare, pretrain
    from lightbert.models import build
    from lightbert.models.folder import save
    from lightbert.tasks.predict.loading import load

__all__ = ["build", "distill", "evaluate", "finetune", "load", "prepare", "presets", "pretrain", "save"]
__version__ = "0.1.0"

_HOMES = {
    "build": "lightbert.models",
    "load": "lightbert.tasks.predict.loading",
    "save": "lightbert.models.folder",
    **dict.fromkeys(("prepare", "pretrain", "distill", "finetune", "evaluate"), "lightbert.commands.jobs"),
}


# transformers' auto classes find our folders once they are imported, before or after us.
hook.install()


def presets() -> list[str]:
    """Return the names that `build` knows."""
    from lightbert.models import PRESETS

    return list(PRESETS)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lightbert' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
