"""A fine-tuning recipe: what a TOML file and the command line can say about one run."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from lightbert.config import check
from lightbert.errors import InputError
from lightbert.ranges import Count, NonNegative, PartialShare, PositiveShare, Size
from lightbert.tasks.datasets.own_files import Files
from lightbert.train.base_recipe import BaseRecipe


@dataclass(frozen=True)
class HeadSettings:
    """What stands between [CLS] and the labels: nothing (ELECTRA), BERT's tanh, or transformers' gelu."""

    hidden: Annotated[
        Literal["none", "tanh", "gelu"],
        "the layer between [CLS] and the labels: none (ELECTRA), tanh (BERT's pooler), gelu; transformers' classes "
        "have room for the last two only",
    ] = "none"
    dropout: Annotated[PartialShare, "before the labels"] = 0.1

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class AnswerSettings:
    """Question answering: BERT's two logits ("span") or ELECTRA's joint head ("beam"), windows and candidates."""

    head: Annotated[Literal["span", "beam"], "SQuAD: two logits per token, or ELECTRA's joint head"] = "span"
    stride: Annotated[Size, "tokens from one window of a long context to the next"] = 128
    max_query: Annotated[Size, "tokens of a question; longer ones are cut"] = 64
    max_answer: Annotated[Size, "tokens of an answer"] = 30
    n_best: Annotated[Size, "candidates that are kept"] = 20

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class FinetuneRecipe(BaseRecipe):
    """Keys of fine-tuning."""

    required: ClassVar[tuple[str, ...]] = ("model", "out")

    model: Annotated[str, "a trained model; a preset has random weights and needs a tokenizer; required"] = ""
    tokenizer: Annotated[str, "a tokenizer.json or vocab.txt, where the model has none"] = ""
    task: Annotated[str, "a task by its name, such as rte, squad or tokens; without one data.train is read"] = ""
    data: Annotated[str | Files, "the folder of a task, or the keys data.* below"] = ""
    head: HeadSettings = field(default_factory=HeadSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    scaled: Annotated[
        bool, "numbers are learned as their place between the lowest and the highest; the trained model has them as is"
    ] = True
    double: Annotated[bool, "pairs that mean the same in either order are trained on in both"] = True
    limit: Annotated[Count, "train on the first so many examples only; 0: all"] = 0
    epochs: Annotated[NonNegative, "passes over the data, also parts of one"] = 3.0
    batch: int = 32
    sort_over: Annotated[
        Size, "rows are sorted by length over so many batches: little padding; 1: a batch is of any rows"
    ] = 64
    length: Annotated[Size, "tokens per row; longer texts are cut, a pair on its longer side"] = 128
    lr: float = 1e-4
    layer_decay: Annotated[
        PositiveShare, "the rate of each layer, as a share of the rate of the one above; 1: all alike"
    ] = 0.8
    layer_depths: Annotated[
        Literal["released", "corrected"],
        "released counts an empty place above the top block, as ELECTRA's code does",
    ] = "released"
    choose: Annotated[Literal["last", "best"], "the weights to keep: the last, or the best on dev"] = "last"
    metric: Annotated[str, "what is best, if not the task's own first number; of mse the lowest"] = ""
    checkpoint_every: int = 500
    keep: int = 1
    evaluate_every: Annotated[Count, "steps between evaluations; 0: one per epoch"] = 0
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.task and not (isinstance(self.data, Files) and self.data.train):
            raise InputError("the recipe has nothing to train on: add task=NAME data=FOLDER, or data.train=FILE")
