"""The keys shared by recipes that train on prepared text."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from lightbert.config import MAY_CHANGE, Count, PartialShare, Size
from lightbert.data.masking_settings import Masking
from lightbert.errors import InputError
from lightbert.train.base_recipe import BaseRecipe
from lightbert.train.schedule import Schedule

if TYPE_CHECKING:
    from lightbert.data.examples import Builder


@dataclass(frozen=True)
class CorpusRecipe(BaseRecipe):
    """Keys of every recipe that trains on prepared text."""

    required: ClassVar[tuple[str, ...]] = ("data", "out")

    data: Annotated[str, "a folder written by lightbert prepare; it sets the vocabulary; required"] = ""
    verify: Annotated[
        bool, MAY_CHANGE, "hash all data files at the start, also those that did not change since they were verified"
    ] = False
    epochs: Annotated[Count, "passes over the data; use instead of steps"] = 0
    examples: Annotated[
        Literal["segments", "segments-released", "lines", "pairs", "packed"],
        "how documents become rows: segments (ELECTRA), lines (Chang et al.), pairs (BERT, with next-sentence "
        "prediction), packed (full windows)",
    ] = "segments"
    dropout: Annotated[
        PartialShare | None, "overrides both dropout rates of the model's config; 0 is fastest on a CPU"
    ] = None
    masking: Masking = field(default_factory=Masking)
    whole_words: Annotated[bool, "mask whole words instead of single tokens"] = False
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=10_000))
    evaluate_batches: Annotated[Size, "held-out batches per evaluation"] = 20
    checkpointing: Annotated[
        bool, MAY_CHANGE, "recompute activations in the backward pass: less memory, about a third slower"
    ] = False
    sharding: Annotated[
        Literal["replicate", "shard"],
        MAY_CHANGE,
        "shard: split weights, gradients and optimizer state across processes (FSDP2) instead of replicating them",
    ] = "replicate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps and self.epochs:
            raise InputError(f"only one of steps and epochs can be set, got {self.steps} and {self.epochs}")
        captured = self.cuda_graph is True
        if self.sharding == "shard" and (captured or self.optimizer.kind == "muon"):
            what = "cuda_graph=true" if captured else 'optimizer.kind = "muon"'
            raise InputError(f"{what} requires unsharded tensors; use sharding=replicate or remove {what}")

    @property
    def longest(self) -> int:
        """The tokens of the longest row, for which the model needs positions."""
        return self.length

    def builder(self) -> "Builder":
        """Return the builder that turns documents into examples."""
        from lightbert.data.examples import LinePairs, Packing, Segments, SentencePairs

        match self.examples:
            case "segments":
                return Segments()
            case "segments-released":
                return Segments(released=True)
            case "lines":
                return LinePairs()
            case "pairs":
                return SentencePairs()
            case "packed":
                return Packing()
