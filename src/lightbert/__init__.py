"""Small, fast text encoders with convolution and attention: ConvBERT, composite attention and MobileBERT.

`build`, `load`, `save` and `presets` create and store models; `prepare`, `pretrain`, `distill`, `finetune` and
`evaluate` run the commands of the same names. torch is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from lightbert.interop import hook

if TYPE_CHECKING:
    from lightbert.commands.jobs import distill, evaluate, finetune, prepare, pretrain
    from lightbert.models.folder import save
    from lightbert.tasks.predict.exported import load
    from lightbert.tasks.predict.text_model import build

__all__ = ["build", "distill", "evaluate", "finetune", "load", "prepare", "presets", "pretrain", "save"]
__version__ = "0.1.0"

_MODULES = {
    "build": "lightbert.tasks.predict.text_model",
    "load": "lightbert.tasks.predict.exported",
    "save": "lightbert.models.folder",
    **dict.fromkeys(("prepare", "pretrain", "distill", "finetune", "evaluate"), "lightbert.commands.jobs"),
}


# Registers lightbert's folders with transformers' auto classes, whichever is imported first.
hook.install()


def presets() -> list[str]:
    """Return the names of all presets."""
    from lightbert.models import PRESETS

    return list(PRESETS)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lightbert' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
