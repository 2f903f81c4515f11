"""A model: an encoder with the metadata that is saved with its weights, and heads by kind."""

import inspect
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lightbert.errors import InputError, unknown
from lightbert.models.mobilebert import MobileBert
from lightbert.models.presets import Config
from lightbert.nn import heads
from lightbert.nn.encoder import Encoder
from lightbert.nn.fused import install_on_gpu
from lightbert.nn.init import initialize, seed_from_torch
from lightbert.nn.pooling_settings import Pooling

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HeadSettings = dict[str, dict[str, Any]]
"""Kind of head -> the settings it was built with."""


@dataclass(frozen=True)
class Metadata:
    """What a model folder contains besides the weights. Use `dataclasses.replace` to change a field."""

    config: Config
    head_settings: HeadSettings = field(default_factory=dict)
    tokenizer: "Tokenizer | None" = None
    labels: tuple[str, ...] = ()
    """The names of a classifier's outputs, in order."""
    task: dict[str, Any] = field(default_factory=dict)
    """What the model was fine-tuned for, as plain values."""
    origin: str = ""
    """The `model_type` under which another library saved the model."""
    pooling: Pooling | None = None
    """How a sentence encoder computes vectors; None if the model is not one."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Linear layer -> the range of its input, from quantization-aware training."""


class Model(Encoder):
    """An encoder with its metadata, each field an attribute: ``model.config``, ``model.tokenizer``, ``model.labels``.

    A model is an encoder: its parameters have the same names, and every function that takes an encoder takes a model
    (docs/adr/0003).

    encoder: its embeddings, blocks and heads are shared with the model, not copied.
    """

    config: Config
    head_settings: HeadSettings
    tokenizer: "Tokenizer | None"
    labels: tuple[str, ...]
    task: dict[str, Any]
    origin: str
    pooling: Pooling | None
    ranges: dict[str, tuple[float, float]]

    def __init__(self, encoder: Encoder, metadata: Metadata) -> None:
        super().__init__(encoder.embeddings, encoder.blocks, **_settings(encoder))
        self.heads, self.checkpointing, self.training = encoder.heads, encoder.checkpointing, encoder.training
        self.metadata = metadata

    @property
    def metadata(self) -> Metadata:
        """All fields. Assign ``replace(other.metadata, config=config)`` to copy them from another model."""
        return Metadata(**{entry.name: getattr(self, entry.name) for entry in fields(Metadata)})

    @metadata.setter
    def metadata(self, metadata: Metadata) -> None:
        for entry in fields(Metadata):
            setattr(self, entry.name, getattr(metadata, entry.name))

    @property
    def encoder(self) -> Encoder:
        """The network alone: a plain encoder that shares the model's modules."""
        encoder = Encoder(self.embeddings, self.blocks, **_settings(self))
        encoder.heads, encoder.checkpointing, encoder.training = self.heads, self.checkpointing, self.training
        return encoder

    def _apply(self, *arguments: Any, **settings: Any) -> "Model":
        # Also called by `to`, `cuda` and `to_empty`, and when a module that contains the model is moved.
        super()._apply(*arguments, **settings)  # type: ignore[no-untyped-call]
        install_on_gpu(self)
        return self

    def require_tokenizer(self) -> "Tokenizer":
        """Return the tokenizer; raise an InputError if there is none, or if it doesn't fit the embeddings."""
        if self.tokenizer is None:
            raise InputError(
                "the model has no tokenizer: put its tokenizer.json or vocab.txt into the folder, or set "
                "model.tokenizer to a tokenizers.Tokenizer"
            )
        entries, embeddings = self.tokenizer.get_vocab_size(), self.table.shape[0]
        if entries > embeddings:
            raise InputError(
                f"the vocabulary of the tokenizer ({entries:,} entries) must not be larger than that of the model "
                f"({embeddings:,} embeddings); use the tokenizer that the model was trained with"
            )
        return self.tokenizer


def _settings(encoder: Encoder) -> dict[str, Any]:
    return {name: getattr(encoder, name) for name in ("width", "positions", "released_padding", "fp16")}


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
    config = model.config
    mobile = config if isinstance(config, MobileBert) else None
    defaults: dict[str, Any] = {}
    match kind:
        case "mlm":
            hidden = max(config.width, config.narrow) if mobile else config.narrow
            defaults = {"hidden": hidden, "activation": config.activation, "eps": config.eps}
        case "rtd":
            defaults = {"activation": config.activation}
        case "nsp":
            defaults = {"pooled": not (mobile and mobile.norm == "none")}
    complete = {**defaults, **(settings or {})}
    sizes = (model.width, *model.table.shape) if kind == "mlm" else (model.width,)
    with torch.device("meta"):
        try:
            inspect.signature(_KINDS[kind]).bind(*sizes, **complete)
            head = _KINDS[kind](*sizes, **complete)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(f"invalid settings {complete} for the {kind} head: {error}") from None
    if model.table.device.type != "meta":
        head = head.to_empty(device=model.table.device).to(model.table.dtype)
        for table in head.buffers():
            table.zero_()
        initialize(head, seed_from_torch() if seed is None else seed, prefix=f"heads.{kind}.")
    model.heads[kind] = head
    install_on_gpu(model)
    model.head_settings[kind] = complete
    return head
