"""TensorBoard has the numbers of metrics.jsonl."""

import pytest

from lightbert.train.log import MetricsFile, TensorBoard


def test_scalars_reach_the_event_file(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = MetricsFile(tmp_path / "metrics.jsonl", 0, TensorBoard(tmp_path / "tensorboard", 0))
    for step in (1, 2, 3):
        log.write("train", step, {"loss": 10.0 / step, "examples": [1, 2]})
    log.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    seen = [(event.step, round(event.value, 4)) for event in events.Scalars("train/loss")]
    assert seen == [(1, 10.0), (2, 5.0), (3, 3.3333)]
    assert events.Tags()["scalars"] == ["train/loss"]
