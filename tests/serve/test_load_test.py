"""The load test: it measures real servers on the loopback address, and ends."""

import socket
import threading
from itertools import pairwise

import pytest
from tiny_classifiers import tiny_model, write_tiny_model

from lightbert.cli import main
from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.serve import load_test
from lightbert.serve.load_test import (
    GROUPED_LOOP,
    LOOP,
    SERVE,
    Load,
    Overload,
    Rate,
    ServingReport,
    Settings,
    loop,
    make_requests,
    measure,
    run_clients,
)
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans

REVIEWS = Classify(("bad", "good"))


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
    load = loop(calls.append, make_requests(2, count=5), group=2, seconds=0.02)
    assert {len(texts) for texts in calls} == {4, 2}
    assert load.texts == sum(map(len, calls)) == 2 * load.statuses[200]
    assert len(load.times) == len(calls)


@pytest.fixture
def answering():
    """A server that sends one given answer per request on each connection, then closes it; its port."""
    servers = []

    def start(*answers):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    for each in answers:
                        if not connection.recv(65536):
                            break
                        connection.sendall(each)

        threading.Thread(target=answer, daemon=True).start()
        return server.getsockname()[1]

    yield start
    for server in servers:
        server.close()


def response(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


def test_answers_for_other_texts_and_closed_connections_are_counted(answering):
    right, other = (f'{{"predictions": [{{"text": "{text}"}}]}}' for text in ("good", "bad"))
    port = answering(response(right), response(other), response('{"predictions": []}'), response("{}", "429 No"))
    load = run_clients(port, "/v1/predict", [["good"]], 1, 0.5)
    assert load.lost > 0
    # Three of the four answers of each connection have status 200, and two of them are wrong.
    assert load.statuses[200] > 2 * load.statuses[429] > 0
    assert load.wrong >= 2 * (load.lost - 1)


def test_vectors_are_counted(answering):
    port = answering(*[response('{"vectors": [[0.5, 1.0]]}')] * 3)
    load = run_clients(port, "/v1/embed", [["good"]], 1, 0.2)
    assert load.wrong == 0
    assert load.texts == load.statuses[200] > 0


def test_a_rate_sends_requests_at_regular_times(answering, monkeypatch):
    taken = []
    take = load_test._Requests.take
    monkeypatch.setattr(load_test._Requests, "take", lambda requests: taken.append(take(requests)) or taken[-1])
    port = answering(*[response('{"vectors": [[0.5]]}')] * 1000)
    load = run_clients(port, "/v1/embed", [["good"]], 1, 1.0, rate=20)
    times = [at for *_, at in taken]
    assert len(times) > 1
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([1 / 20] * (len(times) - 1))
    # A busy machine answers fewer; without a rate, it would be hundreds.
    assert 1 <= load.statuses[200] <= 21


def test_the_server_is_compared_with_loops(tmp_path):
    folder.save(tiny_model(REVIEWS), tmp_path / "model")
    settings = Settings(str(tmp_path / "model"), clients=(2,), seconds=0.3, rounds=1, overload_minutes=0.02)
    report = measure(settings)
    assert [rate.system for rate in report.rates] == [LOOP, GROUPED_LOOP, SERVE]
    assert all(rate.requests_per_second > 0 and rate.p50 <= rate.p99 for rate in report.rates)
    assert set(report.metrics()) >= {"requests_per_second_2", "p99_ms_2", "to_loop_2", "to_grouped_loop_2"}
    overload = report.overload
    assert overload.lost == overload.wrong == 0
    assert overload.other == {}
    assert overload.answered > 0
    assert min(overload.megabytes) > 0


def test_a_model_for_questions_is_one_sentence(tmp_path):
    model = write_tiny_model(tmp_path / "model", Spans("span", stride=4, max_query=4))
    with pytest.raises(InputError, match="the model must take single texts"):
        measure(Settings(str(model), seconds=0.1))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--clients", "1,x"], "--clients must be numbers such as 1,8,32, got 'x'"),
        (["--clients", "0"], "clients must be >= 1, got 0"),
        (["--overload-minutes", "61"], "overload-minutes must be in [0, 60], got 61"),
        (["--seconds", "-1"], "seconds must be in (0, 3600], got -1"),
        (["--texts", "0"], "texts must be >= 1, got 0"),
    ],
)
def test_options_out_of_range_are_one_sentence(arguments, sentence, capsys):
    assert main(["bench", "serving", *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_the_report_compares_with_the_loops():
    speeds = {LOOP: 10.0, GROUPED_LOOP: 20.0, SERVE: 18.0}
    rates = tuple(Rate(system, 8, speed, speed, 1.0, 2.0) for system, speed in speeds.items())
    overload = Overload(60.0, 18.0, 36.0, 1080, 1079, 1, 0, {503: 2}, 90.0, (300.0, 302.0, 301.0))
    report = ServingReport("m", 1, 1, 3, rates, overload)
    assert report.metrics() == pytest.approx(
        {
            "requests_per_second_8": 18.0,
            "p50_ms_8": 1.0,
            "p99_ms_8": 2.0,
            "to_loop_8": 1.8,
            "to_grouped_loop_8": 0.9,
        }
    )
    assert overload.sentence().endswith("300 MiB in the first tenth of the time, 302 in the middle, 301 in the last")
    assert "(2.0 × the capacity): 1,080 answered, 1,079 got 429, 1 lost, 0 wrong, 2 with status 503" in (
        overload.sentence()
    )
