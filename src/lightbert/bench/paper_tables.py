"""The small tables of the papers, their rows as recipes with the papers' figures, and a table of settings."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """A row: a pre-training recipe, perhaps with other settings, and the average GLUE score that a paper reports."""

    label: str
    recipe: str
    paper: float | None = None
    overrides: tuple[str, ...] = ()
    """Keys of pre-training that this row changes, such as lr=1e-3."""
    batch_factor: float = 1.0
    """The batch relative to that of the other rows; the steps are divided by it, so that the tokens are the same."""

    @property
    def name(self) -> str:
        """The recipe and what the row changes, for folders and the command line."""
        resized = [] if self.batch_factor == 1 else [f"batch-x{self.batch_factor:g}"]
        return "-".join([self.recipe, *(word.replace("=", "-") for word in self.overrides), *resized])


@dataclass(frozen=True)
class Table:
    """Rows that differ in one part of the model or in one setting, otherwise trained and fine-tuned in the same way."""

    title: str
    source: str
    """Where the papers' figures are from; "" without figures."""
    arms: tuple[Arm, ...]

    @property
    def figures(self) -> dict[str, float]:
        """The paper's figures by label; empty if the table is not from a paper."""
        return {arm.label: arm.paper for arm in self.arms if arm.paper is not None}


def _settings(label: str, *overrides: str, batch_factor: float = 1.0) -> Arm:
    """A row of the table of settings: ConvBERT-small with a change."""
    return Arm(label, "convbert-small-rtd", None, overrides, batch_factor)


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
    "settings": Table(
        "Settings of pre-training",
        "",
        (
            _settings("common settings"),
            _settings("learning rate 1e-3", "lr=1e-3"),
            _settings("learning rate 1.5e-3", "lr=1.5e-3"),
            _settings("Muon", "optimizer.kind=muon"),
            _settings("half the batch and twice the steps", batch_factor=0.5),
            _settings("twice the batch and half the steps", batch_factor=2),
            _settings("β₂ 0.98", "optimizer.beta2=0.98"),
            _settings("warm-up 2 %", "schedule.warmup=0.02"),
            _settings("warmup-stable-decay", "schedule.kind=wsd"),
            _settings("generator 1/2", "generator=0.5"),
            _settings("dropout 0.1", "dropout=0.1"),
            _settings("mask rate 25 %", "masking.rate=0.25"),
            _settings("loss weight 25", "rtd_weight=25"),
            _settings("loss weight 100", "rtd_weight=100"),
            _settings("embeddings trained by the generator", "shared_embeddings=generator"),
            _settings("packed rows", "examples=packed"),
        ),
    ),
}
