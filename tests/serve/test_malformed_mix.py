"""Malformed requests of every kind at once, from many clients: each gets a 4xx with a sentence, none a 500."""

import json
import random
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from servers import running, text_model
from test_malformed import BODIES, VALUES, mutations

from extras import needs_serve
from lightbert.serve.batching import Limits
from lightbert.tasks.kinds.classify import Classify

pytestmark = needs_serve

LIMITS = Limits(body=20_000, texts=8, tokens=100, body_seconds=1.0)
VALID = b'{"texts": ["good film"]}'
ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "cp037", "latin-1", "utf-8-sig")
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n"
JSON = b"Content-Type: application/json\r\n"


def request(body, head=HEAD + JSON):
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def not_json(choose):
    return request(choose.choice((*BODIES, *mutations(8))))


def wrong_type(choose):
    texts = [choose.choice(VALUES) for _ in range(choose.randint(1, 4))]
    # A value that is a list of strings would be valid texts.
    no_list = choose.choice([value for value in VALUES if not isinstance(value, list)])
    return request(json.dumps({"texts": choose.choice((texts, no_list))}).encode())


def wrong_key(choose):
    return request(json.dumps({"texts": ["good"], choose.choice(["text", "top", "", "é", "x" * 999]): 1}).encode())


def wrong_encoding(choose):
    return request(json.dumps({"texts": ["güt"]}, ensure_ascii=False).encode(choose.choice(ENCODINGS)))


def too_large(choose):
    match choose.randrange(3):
        case 0:
            texts = ["x" * choose.randint(LIMITS.body, 3 * LIMITS.body)]
        case 1:
            texts = ["good"] * choose.randint(LIMITS.texts + 1, 99)
        case _:
            texts = ["good " * 40] * LIMITS.texts
    return request(json.dumps({"texts": texts}).encode())


def wrong_content_type(choose):
    given = choose.choice([b"text/plain", b"", b"application/x-www-form-urlencoded", b"\xff", b"application/jsonl"])
    return request(VALID, HEAD + b"Content-Type: " + given + b"\r\n")


def wrong_path(choose):
    path = choose.choice(
        [b"/v1/none", b"/v1/fill", b"/v1/../etc/passwd", b"/%00", b"/v1/predict/x", b"/" + b"a" * 9999]
    )
    return request(VALID, b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + JSON)


def wrong_method(choose):
    method = choose.choice([b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"])
    return request(VALID, method + b" /v1/predict HTTP/1.1\r\nHost: x\r\n" + JSON)


def not_http(choose):
    return choose.choice(
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + choose.randbytes(200) + b"\r\n\r\n",
            b"hello\r\n\r\n",
            b"POST /v1/predict HTTP/9.9\r\n\r\n",
            b"POST /v1/predict HTTP/1.1\r\nNo colon\r\n\r\n",
            HEAD + b"Content-Length: many\r\n\r\n" + VALID,
            HEAD + b"Content-Length: -5\r\n\r\n" + VALID,
            HEAD + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + VALID,
            HEAD + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        ]
    )


def slow(choose):
    """A head, and less than its body: the rest never comes. Slow heads are the business of a reverse proxy."""
    whole = request(VALID)
    return whole[: choose.randint(whole.index(VALID), len(whole) - 1)]


KINDS = (
    not_json,
    wrong_type,
    wrong_key,
    wrong_encoding,
    too_large,
    wrong_content_type,
    wrong_path,
    wrong_method,
    not_http,
    slow,
)


def exchange(address, sent):
    """Send bytes and return the status and the body of the answer; the server may close before it has read all."""
    with socket.create_connection(address, timeout=30) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        received = b""
        while b"\r\n\r\n" not in received or len(received) < end_of(received):
            try:
                chunk = connection.recv(65536)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                break
            received += chunk
    status = re.match(rb"HTTP/1\.1 (\d+) ", received)
    assert status, (sent[:200], received)
    return int(status[1]), received.partition(b"\r\n\r\n")[2].decode("utf-8")


def end_of(received):
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    # Without a length the body ends with the connection.
    return len(received) - len(body) + int(length[1]) if length else len(received) + 1


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [pytest.param(100, id="few"), pytest.param(1000, id="many", marks=pytest.mark.prove)])
def test_malformed_requests_of_every_kind_get_a_4xx_with_a_sentence(count):
    with running(text_model(Classify(("bad", "good"))), LIMITS) as client, ThreadPoolExecutor(16) as pool:
        address = (client.base_url.host, client.base_url.port)
        kinds = [KINDS[number % len(KINDS)] for number in range(count)]
        sent = [kind(random.Random(number)) for number, kind in enumerate(kinds)]
        answers = list(pool.map(lambda each: exchange(address, each), sent))
        for kind, given, (status, body) in zip(kinds, sent, answers, strict=True):
            assert 400 <= status < 500, (kind.__name__, given[:300], status, body)
            sentence = json.loads(body)["error"]
            assert 2 < len(sentence.split()) < 60, (kind.__name__, given[:300], sentence)
            assert "Traceback" not in sentence
        # The server is as before.
        assert client.post("/v1/predict", json={"texts": ["good film"]}).status_code == 200
        assert "waiting_requests 0" in client.get("/metrics").text
        assert 'status="500"' not in client.get("/metrics").text
