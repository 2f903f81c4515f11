"""The papers' GLUE averages, against their published rows."""

import pytest

from extras import needs_metrics
from lightbert.tasks.datasets.glue import open_glue
from lightbert.tasks.datasets.glue_results import COMPOSITE, CONVBERT, MEANS
from lightbert.tasks.example import Example

# MNLI, QNLI, QQP, RTE, SST-2, MRPC, CoLA, STS-B and the mean: ConvBERT Table 2, then Table 3.
CONVBERT_ROWS = {
    "ELECTRA-small, dev": (78.9, 87.9, 88.3, 68.5, 88.3, 87.4, 56.8, 86.8, 80.4),
    "conventional": (79.9, 85.3, 89.2, 63.9, 86.9, 83.1, 53.4, 83.9, 78.2),
    "dynamic": (81.1, 87.6, 90.1, 64.3, 88.9, 86.8, 59.3, 86.7, 80.6),
    "span-based": (81.5, 88.5, 90.4, 67.1, 90.1, 86.8, 59.7, 87.7, 81.4),
    "ConvBERT-small": (81.5, 88.5, 88.0, 62.2, 89.2, 83.3, 54.8, 83.4, 78.9),
    "ConvBERT-medium-small": (82.1, 88.7, 88.4, 65.3, 89.2, 84.6, 56.4, 82.9, 79.7),
    "ConvBERT-base": (85.3, 92.4, 89.6, 74.7, 95.0, 88.2, 66.0, 88.2, 84.9),
    "ConvBERT-base, 4M updates": (88.3, 93.2, 90.0, 77.9, 95.7, 88.3, 67.8, 89.7, 86.4),
}
# CoLA, MNLI-m, MNLI-mm, MRPC, QNLI, QQP, RTE, SST, STS and the mean: Chang et al. Tables 1, 2 and 7.
COMPOSITE_ROWS = {
    "no convolution": (13.9, 73.2, 71.8, 77.9, 80.7, 74.5, 62.0, 81.9, 79.3, 68.4),
    "absolute": (30.8, 76.1, 75.9, 80.4, 78.5, 74.4, 62.2, 85.1, 76.8, 71.1),
    "fixed": (42.1, 77.2, 76.3, 83.8, 82.7, 75.9, 64.4, 87.1, 81.4, 74.5),
    "dynamic": (39.1, 78.4, 77.4, 83.8, 83.4, 77.5, 64.4, 87.3, 81.4, 74.7),
    "composite": (40.4, 78.2, 77.4, 85.0, 83.3, 77.7, 64.7, 87.8, 82.1, 75.2),
    "base, composite": (50.4, 81.6, 80.8, 85.4, 85.1, 78.7, 69.7, 91.2, 85.7, 78.7),
    "fixed depthwise": (36.9, 77.6, 76.1, 80.6, 81.9, 76.4, 64.5, 87.5, 79.7, 73.5),
    "ConvBERT": (25.5, 75.4, 73.9, 79.7, 76.0, 74.7, 64.3, 85.6, 77.9, 70.3),
}


def results_of(mean, row):
    """Metrics that give the columns of a published row; the two metrics of a pair differ around their mean."""
    results = {}
    for (task, *metrics), printed in zip(mean.columns.values(), row, strict=True):
        apart = 0.03 if len(metrics) == 2 else 0
        values = {metric: printed / 100 + sign * apart for metric, sign in zip(metrics, (1, -1), strict=False)}
        results[task] = values
    return results


def test_the_columns_of_a_printed_row_have_the_printed_mean():
    for mean, row in [(CONVBERT, row) for row in CONVBERT_ROWS.values()] + [
        (COMPOSITE, row) for row in COMPOSITE_ROWS.values()
    ]:
        score = mean.of(results_of(mean, row[:-1]))
        assert score.missing == ()
        # The papers round, once up and once down: the columns of the span-based row give 81.475, printed as 81.4.
        assert 100 * score.mean == pytest.approx(row[-1], abs=0.0751)


def test_the_composite_row_matches_to_two_digits():
    assert 100 * COMPOSITE.of(results_of(COMPOSITE, COMPOSITE_ROWS["composite"][:-1])).mean == pytest.approx(
        75.18, abs=0.005
    )


def test_one_paper_averages_pairs_of_metrics_and_the_other_uses_one():
    results = {"mrpc": {"accuracy": 0.8, "f1": 0.9}, "stsb": {"pearson": 0.7, "spearman": 0.5}}
    convbert, composite = CONVBERT.of(results).columns, COMPOSITE.of(results).columns
    assert (convbert["MRPC"], convbert["STS-B"]) == (0.8, 0.5)
    assert (composite["MRPC"], composite["STS"]) == (pytest.approx(0.85), pytest.approx(0.6))


def test_a_missing_column_gives_no_mean_and_is_named():
    results = results_of(COMPOSITE, COMPOSITE_ROWS["composite"][:-1])
    del results["mnli-mm"], results["qqp"]["f1"]
    score = COMPOSITE.of(results)
    assert score.mean is None
    assert score.missing == ("MNLI-mm", "QQP")
    assert score.sentence() == "Chang et al.'s mean of nine: not computed, missing MNLI-mm, QQP"


def test_the_convbert_mean_ignores_the_mismatched_split():
    score = CONVBERT.of(results_of(CONVBERT, CONVBERT_ROWS["ConvBERT-small"][:-1]))
    assert score.sentence() == "ConvBERT's mean of eight: 78.9"


@needs_metrics
def test_every_metric_of_a_column_is_a_metric_of_the_task():
    for mean in MEANS:
        for title, (name, *metrics) in mean.columns.items():
            task = open_glue(name.removesuffix("-mm"), "hub")
            labels = getattr(task.kind, "labels", (1.0, 4.0))
            examples = [Example("some text", label=label) for label in labels]
            answers = [{"label": label, "score": label} for label in labels]
            found = task.kind.metrics(examples, answers)
            assert {*metrics, task.metric} <= set(found)
            assert mean.of({name: found}).columns[title] == pytest.approx(1)
