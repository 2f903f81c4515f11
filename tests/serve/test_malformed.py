"""Malformed requests in bulk: each is answered with a 4xx and a sentence, none with a 500."""

import json
import random
import re
import socket

from servers import running, text_model

from lightbert.serve.server import HEAD_BYTES
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens

VALUES = (
    None,
    True,
    7,
    -1.5,
    1e300,
    [],
    {},
    [[]],
    ["a"],
    ["a", "b", "c"],
    {"text": 7},
    {"text": None},
    {"words": "a"},
    {"words": [1]},
    {"question": "a"},
    {"context": ["a"]},
    {"": ""},
    ["a", 1],
    [["a", "b"]],
)
BODIES = (
    b"",
    b" ",
    b"{",
    b"}",
    b"nothing",
    b"[1, 2]",
    b"null",
    b'"text"',
    b"7",
    b"NaN",
    b'{"texts": NaN}',
    b'{"texts": ["a"]',
    b'{"texts": ["a"]} x',
    b"\xff\xfe{}",
    b'{"texts": ["\xe9"]}',
    b'{"texts": ["\\ud800"]}',
    b'{"texts": ["\\x"]}',
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"texts": [' + b"[" * 500 + b"]" * 500 + b"]}",
    b"9" * 5000,
    b'{"texts": ["a"], "n": 1}',
    b'{"text": "a"}',
    b"{}",
    b'{"texts": "a"}',
    b'{"texts": {"0": "a"}}',
    b'{"texts": [1e999]}',
    b'{"texts": [{"text": "a", "x": 1e999}]}',
    b"texts=a&b=c",
    b"<texts/>",
    b"\x00" * 50,
    json.dumps({"texts": ["a"]}).encode("utf-16"),
    json.dumps({"texts": ["a"]}).encode("utf-32"),
)

MODELS = {
    "predict": (Classify(("bad", "good")),),
    "predict-tokens": (Tokens(("O", "B-X", "I-X")),),
    "predict-spans": (Spans("span", stride=4, max_query=4),),
    "embed": (None,),
    "attention": (None,),
    "fill": (None, "mlm"),
    "suspicion": (None, "rtd"),
}


def mutations(count):
    """A valid request with bytes replaced, removed and repeated so that it is no longer JSON or UTF-8."""
    choose = random.Random(0)
    valid = b'{"texts": ["good [MASK] film", "a bad one"]}'
    while count:
        body = bytearray(valid)
        for _ in range(choose.randint(1, 6)):
            at = choose.randrange(len(body))
            match choose.randrange(3):
                case 0:
                    body[at] = choose.randrange(256)
                case 1:
                    del body[at : at + choose.randint(1, 9)]
                case 2:
                    body[at:at] = body[at : at + choose.randint(1, 9)]
        try:
            json.loads(bytes(body).decode("utf-8"))
        except ValueError:
            count -= 1
            yield bytes(body)


def assert_sentence(answer, given):
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text, given)
    sentence = answer.json()["error"]
    assert " " in sentence
    assert "Traceback" not in sentence
    assert len(sentence) < 400, sentence


def test_malformed_requests_and_values_of_the_wrong_type_get_a_sentence_and_no_500():
    headers, mutated = {"content-type": "application/json"}, list(mutations(200))
    for name, arguments in MODELS.items():
        path = f"/v1/{name.partition('-')[0]}"
        with running(text_model(*arguments)) as client:
            for body in (*BODIES, *mutated):
                assert_sentence(client.post(path, content=body, headers=headers), (name, body[:80]))
            for value in VALUES:
                body = json.dumps({"texts": [value]}).encode()
                answer = client.post(path, content=body, headers=headers)
                assert_sentence(answer, (name, value))
                assert "texts[0]" in answer.json()["error"]
            example = client.get("/v1/model").json()["endpoints"][name.partition("-")[0]]["example"]
            assert client.post(path, json={"texts": [example]}).status_code == 200


def test_an_option_out_of_range_gets_a_sentence():
    with running(text_model(None, "mlm")) as client:
        for top in (0, 51, -1, 1.5, "3", True, None, [3], 10**30):
            answer = client.post("/v1/fill", json={"texts": ["a [MASK]"], "top": top})
            assert answer.status_code == 400
            assert re.match(
                r"'top' must be (a valid integer|(less|greater) than or equal to \d+), got ", answer.json()["error"]
            )


def test_unusual_texts_are_answered():
    texts = ["", " ", "\x00", "\u200b", "😀" * 50, "a" * 5000, "\u202e", "á", "\r\n\t"]
    for arguments, path in (
        ((Classify(("bad", "good")),), "predict"),
        ((Tokens(("O", "B-X", "I-X")),), "predict"),
        ((None, "rtd"), "suspicion"),
        ((None,), "embed"),
    ):
        with running(text_model(*arguments)) as client:
            for text in texts:
                assert client.post(f"/v1/{path}", json={"texts": [text, "good"]}).status_code == 200, (path, text)


def test_requests_that_are_not_http_get_a_400_and_the_server_goes_on():
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n"
    sent = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)) + b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nNo colon\r\n\r\n",
        head + b"Content-Length: many\r\n\r\n{}",
        head + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        head + b"X: ".ljust(HEAD_BYTES + 1, b"x"),
    ]
    with running(text_model(Classify(("bad", "good")))) as client:
        for content in sent:
            with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
                connection.sendall(content)
                assert connection.recv(4096).startswith(b"HTTP/1.1 400"), content[:80]
        assert client.post("/v1/predict", json={"texts": ["good film"]}).status_code == 200
        metrics = client.get("/metrics").text
    assert "waiting_requests 0" in metrics
    assert 'status="500"' not in metrics
