"""The small tables of the papers: their rows as recipes, with the papers' figures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """A row: a pre-training recipe, and the average GLUE score that the paper reports for it."""

    label: str
    recipe: str
    paper: float


@dataclass(frozen=True)
class Table:
    """Rows that differ in one part of the model only, trained and fine-tuned in the same way."""

    title: str
    source: str
    arms: tuple[Arm, ...]


TABLES = {
    "convolutions": Table(
        "Ways to integrate convolution",
        "ConvBERT Table 2, GLUE dev",
        (
            Arm("none (BERT-small)", "bert-small-rtd", 80.4),
            Arm("conventional", "convbert-small-conventional-rtd", 78.2),
            Arm("dynamic", "convbert-small-dynamic-rtd", 80.6),
            Arm("span-based dynamic", "convbert-small-rtd", 81.4),
        ),
    ),
    "kernel-sizes": Table(
        "Kernel size of span-based dynamic convolution",
        "ConvBERT Figure 5, GLUE dev",
        (
            Arm("1", "convbert-small-kernel-1-rtd", 79.6),
            Arm("5", "convbert-small-kernel-5-rtd", 81.1),
            Arm("9", "convbert-small-rtd", 81.4),
            Arm("17", "convbert-small-kernel-17-rtd", 81.2),
        ),
    ),
    "lightweight": Table(
        "Lightweight convolutions in self-attention",
        "Chang et al. Tables 1 and 7, GLUE test",
        (
            Arm("none", "composite-small-none-mlm", 68.4),
            Arm("absolute positions", "composite-small-absolute-mlm", 71.1),
            Arm("fixed", "composite-small-fixed-mlm", 74.5),
            Arm("dynamic", "composite-small-dynamic-mlm", 74.7),
            Arm("composite", "composite-small-mlm", 75.2),
            Arm("their ConvBERT", "composite-small-convbert-mlm", 70.3),
        ),
    ),
}
