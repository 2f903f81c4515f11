"""The loss curve of a run."""

from collections.abc import Sequence
from pathlib import Path

from lightbert.analysis.picture import new_figure, write
from lightbert.analysis.run_log import read_records


def draw_losses(metrics: Path, picture: Path, more: Sequence[str] = ()) -> None:
    """Plot every loss in metrics.jsonl over the steps: training as a line, held-out as dots.

    more: further metrics to plot. If no loss has a name of its own, such as "mlm_loss", "loss" is plotted.
    """
    records = list(read_records(metrics))
    # Stages of a run can have different losses.
    losses = list(dict.fromkeys(name for record in records for name in record if name.endswith("_loss")))
    names = [*(losses or ["loss"]), *more]
    columns = len(names)
    figure = new_figure(6 * columns, 4)
    panels = figure.subplots(1, columns, squeeze=False)[0]
    for panel, name in zip(panels, names, strict=False):
        for kind, style, label in (("train", "-", "training"), ("held-out", "o-", "held out")):
            points = [
                (record["step"], record[name])
                for record in records
                if record["kind"] == kind and isinstance(record.get(name), int | float)
            ]
            if not points:
                continue
            panel.plot([step for step, _ in points], [value for _, value in points], style, linewidth=0.8, label=label)
        panel.set(xlabel="step", title=name.replace("_", " "))
        if panel.lines:
            panel.legend()
    write(figure, picture)
