"""A model: an encoder with the metadata that is saved with its weights."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError
from lightbert.models.presets import Config
from lightbert.nn.encoder import Encoder
from lightbert.nn.fused import install_on_gpu
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
        super().__init__(
            encoder.embeddings,
            encoder.blocks,
            width=encoder.width,
            positions=encoder.positions,
            released_padding=encoder.released_padding,
            fp16=encoder.fp16,
        )
        self.heads, self.checkpointing, self.training = encoder.heads, encoder.checkpointing, encoder.training
        self.metadata = metadata

    @property
    def metadata(self) -> Metadata:
        """All fields. Assign ``replace(other.metadata, config=config)`` to copy them from another model."""
        return Metadata(**{each.name: getattr(self, each.name) for each in fields(Metadata)})

    @metadata.setter
    def metadata(self, metadata: Metadata) -> None:
        for each in fields(Metadata):
            setattr(self, each.name, getattr(metadata, each.name))

    @property
    def encoder(self) -> Encoder:
        """The network alone: a plain encoder that shares the model's modules."""
        encoder = Encoder(
            self.embeddings,
            self.blocks,
            width=self.width,
            positions=self.positions,
            released_padding=self.released_padding,
            fp16=self.fp16,
        )
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
