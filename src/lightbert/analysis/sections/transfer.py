"""The transfer losses of a distillation run."""

from pathlib import Path

from lightbert.analysis.section import Picture, Section, Table
from lightbert.analysis.transfer_history import read_history
from lightbert.analysis.transfer_plot import plot_transfer


def transfer_section(folder: Path) -> Section:
    """Plot the feature map and attention losses of each layer over the steps of a run."""
    history = read_history(folder / "metrics.jsonl")
    latest = history.latest
    kinds = [kind for kind in ("fmt", "at") if f"{kind}_{history.layers[0]}" in latest]
    split = "held-out" if history.held_out else "train"
    return Section(
        "transfer",
        "Knowledge transfer",
        "The distance of the student's layers from the teacher's over the steps of a distillation.",
        (
            Picture(
                "transfer",
                "Dots are held-out text, faint lines training; later layers are brighter. A layer learns in the stage "
                "with its number, and should keep what it learned in later stages.",
                lambda: plot_transfer(history),
            ),
        ),
        (
            Table(
                f"Latest losses ({split})",
                ("layer", *kinds),
                [(str(layer), *(latest.get(f"{kind}_{layer}") for kind in kinds)) for layer in history.layers],
            ),
        ),
        latest,
        {
            "split": split,
            "stages": [{"learns": stage.name, "steps": [stage.first, stage.last]} for stage in history.stages],
        },
    )
