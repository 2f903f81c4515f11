"""What every recipe says that trains on prepared text."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from lightbert.data.batches.masking_settings import Masking
from lightbert.errors import InputError
from lightbert.keys import MAY_CHANGE
from lightbert.ranges import Count, PartialShare, Size
from lightbert.train.base_recipe import BaseRecipe
from lightbert.train.schedule import Schedule

if TYPE_CHECKING:
    from lightbert.data.examples.index import Builder


@dataclass(frozen=True)
class CorpusRecipe(BaseRecipe):
    """Keys of every training on prepared text."""

    needed: ClassVar[tuple[str, ...]] = ("data", "out")

    data: Annotated[str, "a folder that lightbert prepare made; it decides the vocabulary; required"] = ""
    epochs: Annotated[Count, "passes over the data, instead of steps"] = 0
    examples: Annotated[
        Literal["segments", "segments-released", "lines", "pairs", "packed"],
        "how documents become rows: segments (ELECTRA), lines (Chang et al.), pairs (BERT, with next-sentence "
        "prediction), packed (full windows)",
    ] = "segments"
    dropout: Annotated[PartialShare | None, "replaces both dropouts of the model's config; 0 is fastest on a CPU"] = (
        None
    )
    masking: Masking = field(default_factory=Masking)
    whole_words: Annotated[bool, "mask whole words"] = False
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=10_000))
    evaluate_batches: Annotated[Size, "held-out batches of an evaluation"] = 20
    compile: Annotated[
        Literal["none", "blocks", "whole"],
        MAY_CHANGE,
        "blocks starts within seconds, whole is faster after a minute or more",
    ] = "none"
    checkpointing: Annotated[
        bool, MAY_CHANGE, "recompute activations in the backward pass: less memory, about a third slower"
    ] = False
    sharding: Annotated[
        Literal["replicate", "shard"],
        MAY_CHANGE,
        "shard: processes share weights, gradients and optimizer state out (FSDP2) instead of each holding all",
    ] = "replicate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps and self.epochs:
            raise InputError(f"only one of steps and epochs can be set, got {self.steps} and {self.epochs}")
        if self.sharding == "shard" and (self.cuda_graph or self.optimizer.kind == "muon"):
            what = "cuda_graph" if self.cuda_graph else 'optimizer.kind = "muon"'
            raise InputError(f"{what} needs whole tensors on every process: choose sharding=replicate or leave it out")

    @property
    def longest(self) -> int:
        """The tokens of the longest row: what the model needs positions for."""
        return self.length

    def builder(self) -> "Builder":
        """What makes examples of documents."""
        from lightbert.data.examples.line_pairs import LinePairs
        from lightbert.data.examples.packing import Packing
        from lightbert.data.examples.segments import Segments
        from lightbert.data.examples.sentence_pairs import SentencePairs

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
