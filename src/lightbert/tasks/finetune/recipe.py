"""A fine-tuning recipe: the keys of one run, from a TOML file and the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from lightbert.config import LARGEST, Checked, Count, PartialShare, Positive, PositiveShare, Range, Size, check
from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.finetune import defaults
from lightbert.train.settings import BaseRecipe


@dataclass(frozen=True)
class HeadSettings(Checked):
    """The vector of a text that the head reads, and the layer between this vector and the output layer."""

    pool: Annotated[
        Literal["cls", "mean", "max", "mean-max"],
        "the vector of a text: the state of [CLS], or the mean or maximum over its tokens, or both; for tasks with one "
        "output per text",
    ] = "cls"
    hidden: Annotated[
        Literal["auto", "none", "tanh", "gelu"],
        "the layer between this vector and the output layer: none (ELECTRA), tanh (BERT's pooler), gelu; auto: that of "
        "transformers' class for a model from Hugging Face, which can be written back, otherwise none",
    ] = "auto"
    dropout: Annotated[PartialShare, "dropout before the output layer"] = 0.1
    init: Annotated[
        Literal["random", "probe"],
        "the initial output layer: random, or a linear model fitted on the vectors or states of the frozen encoder; "
        "for tags, and tasks with one output per text",
    ] = "random"


@dataclass(frozen=True)
class AnswerSettings(Checked):
    """Question answering: BERT's two logits ("span") or ELECTRA's joint head ("beam"); windows, candidates."""

    head: Annotated[Literal["span", "beam"], "SQuAD: two logits per token, or ELECTRA's joint head"] = "span"
    stride: Annotated[Size, "tokens between the starts of consecutive windows over a long context"] = 128
    max_query: Annotated[Size, "maximum tokens of a question; longer ones are truncated"] = 64
    max_answer: Annotated[Size, "maximum tokens of an answer"] = 30
    n_best: Annotated[Size, "candidate answers to keep per question"] = 20


@dataclass(frozen=True)
class VectorSettings:
    """How vectors are computed, which is saved with the model, and their loss."""

    pool: Annotated[
        Literal["auto", "mean", "cls", "max"], "vectors: the pool over the states; auto: that of the model, or mean"
    ] = "auto"
    size: Annotated[Count, "vectors: the size of a new projection of the pooled states; 0: none, or the model's"] = 0
    normalize: Annotated[bool, "vectors: the saved model scales vectors to length 1"] = True
    sizes: Annotated[
        tuple[int, ...], "vectors: train their first values as vectors, too (Matryoshka), such as [128, 64]"
    ] = ()
    temperature: Annotated[Positive, "vectors: cosines are divided by it in the loss"] = 0.05
    chunk: Annotated[
        Count, "vectors: texts whose activations are kept at once; the others are computed twice; 0: all"
    ] = 0
    graded: Annotated[Literal["cosent", "cosine", "angle"], "vectors-graded: the loss"] = "cosent"

    def __post_init__(self) -> None:
        check(self)
        if min(self.sizes, default=1) < 1 or len(set(self.sizes)) < len(self.sizes):
            raise InputError(f"vector.sizes must be distinct sizes >= 1, got {list(self.sizes)}")


@dataclass(frozen=True)
class FinetuneRecipe(BaseRecipe):
    """Keys of fine-tuning."""

    required: ClassVar[tuple[str, ...]] = ("model", "out")

    model: Annotated[str, "a trained model; a preset has random weights and needs a tokenizer; required"] = ""
    tokenizer: Annotated[str, "a tokenizer.json, a vocab.txt or a bundled model, if the model has none"] = ""
    task: Annotated[str, "the name of a task, such as rte, squad or tokens; without it, data.train is read"] = ""
    data: Annotated[str | Files, "the folder of a task, or the keys data.* below"] = ""
    head: HeadSettings = field(default_factory=HeadSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    vector: VectorSettings = field(default_factory=VectorSettings)
    scaled: Annotated[
        bool, "regression: train on labels scaled to [0, 1]; the saved model predicts on the original scale"
    ] = True
    double: Annotated[bool, "train on symmetric pairs in both orders"] = True
    limit: Annotated[Count, "train on the first N examples only; 0: all"] = 0
    epochs: Annotated[float, Range(0, LARGEST), "passes over the data; may be a fraction"] = 3.0
    batch: int = 32
    sort_over: Annotated[
        Size, "number of batches over which rows are sorted by length, to reduce padding; 1: no sorting"
    ] = 64
    packing: Annotated[
        Literal["auto", "on", "off"],
        "on: pack the texts of a batch into few rows of one shape, which requires sort_over=1; off: one text per row; "
        "auto: on with sort_over=1, otherwise off",
    ] = "auto"
    length: Annotated[Size, "tokens per row; longer texts are truncated, the longer text of a pair first"] = 128
    lr: float = 1e-4
    layer_decay: Annotated[
        PositiveShare, "the learning rate of each layer relative to the layer above it; 1: the same for all"
    ] = 0.8
    layer_depths: Annotated[
        Literal["released", "corrected"],
        "released: count one extra layer above the top block, as ELECTRA's code does",
    ] = "released"
    quantization_aware: Annotated[
        bool, "simulate int8 in linear layers and learn the ranges of their inputs, for export --int8 qat"
    ] = False
    choose: Annotated[Literal["last", "best"], "the weights to save: the last, or the best on dev"] = "last"
    method: Annotated[
        Literal["finetune", "words", "vectors", "both", "contrast", "auto"],
        "one label, several labels or a number per text: finetune all weights; a linear model of words (TF-IDF), of "
        "vectors of the frozen encoder, or of both; contrast: both after contrastive tuning, for a few texts; auto: "
        "the best of them by cross-validation, unless steps= or epochs= is set",
    ] = "finetune"
    words: Annotated[
        bool, "also train a linear model of words (TF-IDF) on the same texts, and report its metrics on dev"
    ] = False
    auto: Annotated[
        tuple[str, ...],
        f"keys to choose from the kind and size of the data, also written KEY=auto: {', '.join(defaults.KEYS)}",
    ] = ()
    metric: Annotated[str, "the metric that ranks runs, by default the task's own; lower is better for mse"] = ""
    checkpoint_every: int = 500
    keep: int = 1
    evaluate_every: Annotated[Count, "steps between evaluations; 0: one per epoch"] = 0

    @property
    def compares(self) -> bool:
        """Whether methods are compared, instead of fine-tuning alone."""
        return self.method == "auto" and "epochs" in self.auto and not self.steps and not self.quantization_aware

    @classmethod
    def prepare_mapping(cls, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Move the keys whose value is "auto" to the list `auto`."""
        result = dict(mapping)
        data = result.get("data")
        if "out" not in result and isinstance(data, Mapping) and isinstance(data.get("train"), str) and data["train"]:
            result["out"] = f"runs/{Path(data['train']).name.partition('.')[0]}"
        given = result.get("auto", ())
        # A value of another type is an error later.
        auto = list(given) if isinstance(given, list | tuple) else []
        for key in defaults.KEYS:
            table, _, name = key.rpartition(".")
            values = result.get(table, {}) if table else result
            if isinstance(values, Mapping) and values.get(name) == "auto":
                rest = {other: value for other, value in values.items() if other != name}
                result = result | {table: rest} if table else rest
                auto.append(key)
        return result | {"auto": auto} if auto and isinstance(given, list | tuple) else result

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in self.auto:
            if key not in defaults.KEYS:
                raise unknown("key to choose", key, defaults.KEYS)
        for key, needed in (("sort_over", 1), ("accumulate", 1)):
            if self.packing == "on" and getattr(self, key) != needed:
                raise InputError(
                    f"packing=on requires {key}={needed}, got {key}={getattr(self, key)}; add {key}={needed}"
                )
        if not self.task and not (isinstance(self.data, Files) and self.data.train):
            given = self.data if isinstance(self.data, str) else ""
            if given and not Path(given).is_dir():
                raise InputError(
                    f"data must be the folder of a task, got '{given}'; for your own file write data.train={given}"
                )
            raise InputError("a recipe requires training data: add task=NAME data=FOLDER, or data.train=FILE")

    def with_values(self, values: Mapping[str, Any]) -> "FinetuneRecipe":
        """Set the keys of `auto` to these values."""
        chosen = {key: value for key, value in values.items() if key in self.auto}
        tables: dict[str, Any] = {"head": vars(self.head), "change": self.change}
        for key, value in chosen.items():
            table, _, name = key.rpartition(".")
            if table:
                tables[table] = tables[table] | {name: value}
        plain = {key: value for key, value in chosen.items() if "." not in key}
        rest = tuple(key for key in self.auto if key not in chosen)
        return replace(self, **plain, head=HeadSettings(**tables["head"]), change=tables["change"], auto=rest)

    @property
    def starting_model(self) -> str:
        """The model to start from, with the seed of this run in place of ``{seed}``."""
        return self.model.replace("{seed}", str(self.seed))
