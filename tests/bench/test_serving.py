"""The load test: it measures a real server on the loopback address, and ends."""

import re

import pytest
from tiny_classifiers import write_tiny_model

from extras import needs_serve
from lightbert.bench.http_clients import Load
from lightbert.bench.serving import loop_speed, main, make_requests
from lightbert.tasks.kinds.classify.kind import Classify
from lightbert.tasks.kinds.spans.kind import Spans


def test_requests_are_the_same_in_every_run():
    requests = make_requests(3, count=5)
    assert requests == make_requests(3, count=5)
    assert [len(texts) for texts in requests] == [3] * 5
    assert all(4 <= len(text.split()) <= 60 for texts in requests for text in texts)


def test_percentiles_and_rates_are_over_successful_requests():
    load = Load(2, seconds=2.0, texts=6, times=[0.01, 0.02, 0.03])
    load.statuses.update({200: 3, 429: 7})
    assert load.requests_per_second == 1.5
    assert load.texts_per_second == 3.0
    assert load.percentile(50) == pytest.approx(20.0)


def test_the_loop_computes_groups_of_requests():
    calls = []
    assert loop_speed(calls.append, make_requests(2, count=5), group=2, seconds=0.02) > 0
    assert {len(texts) for texts in calls} == {4, 2}


@needs_serve
def test_the_command_measures_clients_and_overload(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", Classify(("bad", "good")))
    assert main([str(model), "--clients", "2", "--seconds", "0.4", "--overload", "0.5"]) == 0
    out = capsys.readouterr().out
    requests = re.search(r"2 clients: (\d+) requests/s, p50 [\d.]+ ms, p99 [\d.]+ ms, (\d+) texts/s", out)
    assert requests
    assert int(requests[1]) > 0
    answered = re.search(r"queue of 8: (\d+) answered, ([\d,]+) got 429; p99", out)
    assert answered, out
    assert int(answered[1]) > 0
    assert int(answered[2].replace(",", "")) > 0
    assert "wrong" not in out
    assert "other statuses" not in out


@needs_serve
def test_a_model_for_questions_is_one_sentence(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", Spans("span", stride=4, max_query=4))
    assert main([str(model), "--seconds", "0.1"]) == 1
    assert "the model must take single texts" in capsys.readouterr().err
