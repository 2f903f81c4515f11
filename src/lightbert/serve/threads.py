"""The number of threads that a model computes with."""

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from lightbert.tasks.predict.exported import ExportedModel

if TYPE_CHECKING:
    from lightbert.tasks.predict.text_model import TextModel

M = TypeVar("M", bound="TextModel | ExportedModel")


def with_threads(model: M, threads: int) -> M:
    """The model with this number of threads; 0 = chosen by its runtime. Torch has one number for the whole process."""
    if threads == 0:
        return model
    if isinstance(model, ExportedModel):
        return replace(model, threads=threads)
    import torch

    torch.set_num_threads(threads)
    return model
