"""The load test with transformers' pipeline."""

import pytest
from tiny_classifiers import tiny_model

import lightbert
from benchmarks.peers import text_classifier
from benchmarks.serving import GROUPED_PIPELINE, PIPELINE, PipelineReport, export, main, measure
from extras import needs_serve, needs_trainer
from lightbert.models import folder
from lightbert.serve.load_test import GROUPED_LOOP, LOOP, SERVE, Rate, Settings, _classifier, make_requests
from lightbert.tasks.kinds.classify import Classify


@needs_serve
@needs_trainer
def test_the_server_is_compared_with_pipelines(tmp_path):
    # transformers has no head without a hidden layer for this model.
    folder.save(tiny_model(Classify(("bad", "good")), hidden="gelu"), tmp_path / "model")
    report = measure(Settings(str(tmp_path / "model"), clients=(2,), seconds=0.3, rounds=1, overload_minutes=0))
    assert {rate.system for rate in report.rates} == {LOOP, GROUPED_LOOP, SERVE, PIPELINE, GROUPED_PIPELINE}
    assert report.metrics()["to_pipeline_2"] > 0


@needs_serve
def test_a_model_that_transformers_does_not_read_is_measured_without_it(tmp_path, capsys):
    folder.save(tiny_model(None, "rtd"), tmp_path / "model")
    arguments = ["--clients", "1", "--seconds", "0.2", "--rounds", "1", "--overload-minutes", "0"]
    main(["--model", str(tmp_path / "model"), *arguments])
    out = capsys.readouterr().out
    assert "lightbert serve" in out
    assert "pipeline was not measured: transformers' pipeline is compared for classifiers only" in out.replace(
        "\n", " "
    )


@needs_trainer
def test_a_preset_becomes_the_same_classifier_for_both_libraries(tmp_path):
    [texts] = make_requests(5, count=1)
    model, theirs = _classifier("convbert-tiny", tmp_path / "ours", texts), tmp_path / "theirs"
    export(model, theirs)
    ours = lightbert.load(model).predict(texts)
    # One text per batch, because transformers' ConvBERT reads the padding.
    for mine, other, text in zip(ours, text_classifier(theirs)(texts), texts, strict=True):
        assert other["text"] == text
        assert other["label"] == mine["label"]
        assert other["probabilities"] == pytest.approx(mine["probabilities"], abs=1e-5)
    assert [each["text"] for each in text_classifier(theirs, batch=8)(texts)] == texts


def test_the_report_compares_with_the_faster_pipeline():
    speeds = {LOOP: 10.0, GROUPED_LOOP: 20.0, SERVE: 18.0, PIPELINE: 6.0, GROUPED_PIPELINE: 9.0}
    rates = tuple(Rate(system, 8, speed, speed, 1.0, 2.0) for system, speed in speeds.items())
    assert PipelineReport("m", 1, 1, 3, rates, None).metrics()["to_pipeline_8"] == pytest.approx(2.0)
