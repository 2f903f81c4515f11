"""The loss curve of a run as a picture."""

import json
from pathlib import Path


def draw_losses(metrics: Path, picture: Path) -> None:
    """Draw every loss in metrics.jsonl over the steps: training as a line, held-out as dots."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    train = [record for record in records if record["kind"] == "train"]
    held_out = [record for record in records if record["kind"] == "held-out"]
    # Not every stage of a run has every loss.
    names = list(dict.fromkeys(name for record in records for name in record if name.endswith("_loss")))
    figure, axes = pyplot.subplots(1, max(1, len(names)), figsize=(6 * max(1, len(names)), 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=False):
        for some, style, label in ((train, "-", "training"), (held_out, "o-", "held out")):
            points = [(record["step"], record[name]) for record in some if name in record]
            axis.plot([step for step, _ in points], [value for _, value in points], style, linewidth=0.8, label=label)
        axis.set(xlabel="step", title=name.replace("_", " "))
        axis.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
