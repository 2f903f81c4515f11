"""Add heads to a model by kind, with the default settings of its family."""

import inspect
from typing import Any

import torch
from torch import nn

from lightbert.errors import InputError, unknown
from lightbert.models.mobilebert import MobileBert
from lightbert.models.model import Model
from lightbert.nn import heads
from lightbert.nn.fused import install_on_gpu
from lightbert.nn.init import initialize, seed_from_torch

_KINDS: dict[str, type[nn.Module]] = {
    "mlm": heads.MaskedLanguage,
    "rtd": heads.ReplacedToken,
    "pooler": heads.Pooler,
    "nsp": heads.NextSentence,
    "vector": heads.Projection,
    "classify": heads.Classification,
    "regress": heads.Regression,
    "tokens": heads.TokenClassification,
    "choice": heads.MultipleChoice,
    "span": heads.Span,
    "beam": heads.BeamSpan,
}


def add_head(model: Model, kind: str, settings: dict[str, Any] | None = None, *, seed: int | None = None) -> nn.Module:
    """Add a new head as ``model.heads[kind]``; its settings are saved with the model.

    seed: as in ``build``; the same seed gives the head the same weights as building the model with it.

    The defaults depend on the family: activation and epsilon of the MLM and RTD heads, and for MobileBERT an MLM
    transform of the full width and, without LayerNorm, a next-sentence head on the raw [CLS] state.
    """
    if kind not in _KINDS:
        raise unknown("head", kind, _KINDS)
    complete = {**_family_settings(model, kind), **(settings or {})}
    sizes = (model.width, *model.table.shape) if kind == "mlm" else (model.width,)
    with torch.device("meta"):
        try:
            inspect.signature(_KINDS[kind]).bind(*sizes, **complete)
            head = _KINDS[kind](*sizes, **complete)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(f"invalid settings {complete} for the {kind} head: {error}") from None
    if model.table.device.type != "meta":
        head = head.to_empty(device=model.table.device).to(model.table.dtype)
        initialize(head, seed_from_torch() if seed is None else seed, prefix=f"heads.{kind}.")
    model.heads[kind] = head
    install_on_gpu(model)
    model.head_settings[kind] = complete
    return head


def _family_settings(model: Model, kind: str) -> dict[str, Any]:
    config = model.config
    match kind:
        case "mlm":
            hidden = config.width if isinstance(config, MobileBert) else config.narrow
            return {"hidden": hidden, "activation": config.activation, "eps": config.eps}
        case "rtd":
            return {"activation": config.activation}
        case "nsp":
            return {"pooled": not (isinstance(config, MobileBert) and config.norm == "none")}
    return {}
