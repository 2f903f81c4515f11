"""Training objectives: modules that compute losses from a batch; those of `lightbert pretrain` by name."""

import importlib
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lightbert.objectives.objective import Objective

OBJECTIVES = {
    "rtd": "lightbert.objectives.rtd:ReplacedTokenDetection",
    "mlm": "lightbert.objectives.mlm:MaskedLanguageModelling",
}
"""Name -> class with a `title` and `start`."""

ObjectiveName = Literal["rtd", "mlm"]


def objective_class(name: str) -> "type[Objective]":
    """The class of an objective of pre-training."""
    module, _, class_name = OBJECTIVES[name].partition(":")
    objective: type[Objective] = getattr(importlib.import_module(module), class_name)
    return objective
