"""The limits of a server: each is enforced with a sentence, and what was accepted is answered."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest
from servers import HeldRuntime, running, running_endpoints, text_model

from lightbert.errors import InputError
from lightbert.serve.batching import Limits
from lightbert.serve.models import endpoints_of
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.tokens import Tokens

REVIEWS = Classify(("bad", "good"))


@pytest.fixture
def held():
    """The endpoints of a model whose batches wait until they are released."""
    endpoints = endpoints_of(text_model(REVIEWS), device="cpu")
    endpoints["predict"].runtime = HeldRuntime(endpoints["predict"].runtime)
    yield endpoints
    endpoints["predict"].runtime.released.set()


def post(client, *texts):
    return client.post("/v1/predict", json={"texts": list(texts)})


def waiting(client):
    [line] = [line for line in client.get("/metrics").text.splitlines() if line.startswith("lightbert_waiting")]
    return float(line.split()[1])


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_limits_are_positive():
    for name in [field.name for field in fields(Limits) if field.name != "window"]:
        with pytest.raises(InputError, match="must be > 0, got 0"):
            Limits(**{name: 0})


def test_the_number_of_texts_is_limited():
    with running(text_model(REVIEWS), Limits(texts=3)) as client:
        assert post(client, *["good"] * 3).status_code == 200
        answer = post(client, *["good"] * 4)
    assert answer.status_code == 413
    assert answer.json()["error"] == "a request must have at most 3 texts, got 4; send several"


def test_the_number_of_tokens_is_limited_including_the_windows_of_long_texts():
    with running(text_model(Tokens(("O", "B-X", "I-X"))), Limits(tokens=200)) as client:
        assert post(client, "good " * 50).status_code == 200
        answer = post(client, "good " * 500)
    assert answer.status_code == 413
    assert "at most 200 tokens, got" in answer.json()["error"]


@pytest.mark.parametrize(("size", "chunked"), [(1001, False), (3000, True), (100_000, True)])
def test_the_size_of_a_body_is_limited(size, chunked):
    with running(text_model(REVIEWS), Limits(body=1000)) as client:
        body = json.dumps({"texts": ["x" * (size - 15)]}).encode()
        assert len(body) == size
        headers = {"content-type": "application/json"}
        content = iter([body[:500], body[500:]]) if chunked else body
        answer = client.post("/v1/predict", content=content, headers=headers)
        assert post(client, "good").status_code == 200
    assert answer.status_code == 413
    assert "at most 1,000 bytes" in answer.json()["error"]


def test_a_body_must_be_declared_as_json():
    with running(text_model(REVIEWS)) as client:
        answer = client.post("/v1/predict", content=b'{"texts": ["good"]}', headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "application/json, got 'text/plain'" in answer.json()["error"]


def test_a_client_that_leaves_in_the_middle_of_a_body_does_no_harm():
    with running(text_model(REVIEWS)) as client:
        url = client.base_url
        for _ in range(20):
            with socket.create_connection((url.host, url.port), timeout=20) as leaving:
                leaving.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        assert post(client, "good").status_code == 200
        wait_for(lambda: 'status="400"} 20.0' in client.get("/metrics").text)
        assert 'status="500"' not in client.get("/metrics").text


def test_a_full_queue_is_answered_with_429_and_nothing_accepted_is_lost(held):
    with running_endpoints(held, Limits(queue=3)) as client, ThreadPoolExecutor(3) as pool:
        accepted = [pool.submit(post, client, f"good film {number}") for number in range(3)]
        wait_for(lambda: waiting(client) == 3)
        rejected = post(client, "good")
        assert rejected.status_code == 429
        assert rejected.headers["retry-after"] == "1"
        assert rejected.json()["error"] == "3 requests are waiting, the maximum; try again in a second"
        held["predict"].runtime.released.set()
        answers = [each.result() for each in accepted]
        assert post(client, "good").status_code == 200
    assert [answer.status_code for answer in answers] == [200] * 3
    for number, answer in enumerate(answers):
        assert answer.json()["predictions"][0]["text"] == f"good film {number}"


def test_a_request_that_waits_too_long_gets_a_503_and_is_not_computed(held):
    runtime = held["predict"].runtime
    with running_endpoints(held, Limits(timeout=0.5)) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client, "good")
        assert runtime.started.wait(20)
        late = post(client, "bad")
        assert late.status_code == 503
        assert late.json()["error"] == "no answer within 0.5 seconds; try again later"
        runtime.released.set()
        assert first.result().status_code == 503
        assert post(client, "film").status_code == 200
    assert runtime.rows == [1, 1], "the late request must not be computed"


def test_requests_that_arrive_together_share_a_batch_and_keep_their_answers(held):
    runtime = held["predict"].runtime
    with running_endpoints(held) as client, ThreadPoolExecutor(9) as pool:
        first = pool.submit(post, client, "good")
        assert runtime.started.wait(20)
        others = [pool.submit(post, client, f"film {number}", "bad") for number in range(8)]
        wait_for(lambda: waiting(client) == 9)
        # The ninth request is accepted and about to be queued.
        time.sleep(0.3)
        runtime.released.set()
        assert first.result().status_code == 200
        for number, other in enumerate(others):
            assert [each["text"] for each in other.result().json()["predictions"]] == [f"film {number}", "bad"]
    assert sum(runtime.rows) == 17
    assert len(runtime.rows) <= 4


def test_a_failure_of_the_model_is_a_500_without_details_for_its_request_only(held, capsys):
    runtime = held["predict"].runtime
    submit = runtime._runtime.submit

    def failing(ids, mask, segments):
        if len(ids) > 1 or ids.shape[1] > 4:
            raise RuntimeError("secret detail")
        return submit(ids, mask, segments)

    runtime._runtime.submit = failing
    runtime.released.set()
    with running_endpoints(held) as client, ThreadPoolExecutor(4) as pool:
        lengths = [1, 8, 2, 9]
        answers = list(pool.map(lambda length: post(client, "good " * length), lengths))
    assert [answer.status_code for answer in answers] == [200, 500, 200, 500]
    assert "secret" not in answers[1].text
    assert "secret detail" in capsys.readouterr().err


def test_many_clients_get_their_own_answers():
    texts = [f"{'good ' * (number % 13)}{number}" for number in range(120)]
    with running(text_model(REVIEWS)) as client, ThreadPoolExecutor(16) as pool:
        expected = [post(client, text).json() for text in texts[:20]]
        answers = [answer.json() for answer in pool.map(lambda text: post(client, text), texts)]
    assert [answer["predictions"][0]["text"] for answer in answers] == texts
    for one, other in zip(answers, expected, strict=False):
        assert one["predictions"][0]["probability"] == pytest.approx(other["predictions"][0]["probability"], abs=1e-6)


def test_no_thread_is_left_when_a_server_stops():
    before = threading.active_count()
    with running(text_model(REVIEWS)) as client:
        post(client, "good")
    wait_for(lambda: threading.active_count() <= before)
