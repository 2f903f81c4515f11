"""`lightbert serve` as a process: it starts, answers, and stops on a signal after it has finished its work."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from servers import text_model
from tiny_classifiers import write_tiny_model

import lightbert
from extras import needs_onnx
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.serve.models import endpoints_of, load_generator, with_threads
from lightbert.tasks.kinds.classify import Classify

REVIEWS = Classify(("bad", "good"))

# Every batch takes half a second, so that a signal finds requests that are waiting.
SLOW = (
    "import sys, time; from lightbert.serve import batching; from lightbert.cli import main; fast = batching.run; "
    "batching.run = lambda *arguments: time.sleep(0.5) or fast(*arguments); sys.exit(main())"
)


@contextmanager
def served(model, *arguments, port="0"):
    """A process that serves, and its URL."""
    command = [sys.executable, "-c", SLOW, "serve", str(model), *arguments, "--port", port, "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert url, line + process.stderr.read()
        yield process, url[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_after_it_has_answered_what_it_has(number, tmp_path):
    import httpx

    model = write_tiny_model(tmp_path / "model", REVIEWS)
    with served(model) as (process, url), httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        assert client.get("/healthz").json()["model"] == "model"
        with ThreadPoolExecutor(8) as pool:
            posted = [pool.submit(client.post, "/v1/predict", json={"texts": [f"good {at}"] * 3}) for at in range(8)]
            until = time.monotonic() + 30
            while "waiting_requests 8.0" not in client.get("/metrics").text:
                assert time.monotonic() < until
            process.send_signal(number)
            answers = [each.result() for each in posted]
        out, err = process.communicate(timeout=60)
    assert [answer.status_code for answer in answers] == [200] * 8
    for at, answer in enumerate(answers):
        assert [each["text"] for each in answer.json()["predictions"]] == [f"good {at}"] * 3
    assert process.returncode == 0, err
    assert json.loads(out) == {"requests": 8, "texts": 24}
    assert "Traceback" not in err


def test_a_killed_server_can_be_started_again_on_the_same_port(tmp_path):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    with served(model) as (process, url):
        port = url.rpartition(":")[2]
        with socket.create_connection(("127.0.0.1", int(port))) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            process.kill()
            process.wait()
    with served(model, port=port) as (_, again):
        assert again == url


def test_a_port_in_use_is_one_sentence(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path), "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 can't be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "65536"], "--port must be in [0, 65535], got 65536"),
        (["--queue", "0"], "--queue must be > 0, got 0"),
        (["--threads", "-1"], "--threads must be >= 0, got -1"),
        (["--timeout", "-1"], "--timeout must be > 0, got -1"),
        (["--host", "no host"], "host must be an address of this machine, got 'no host'"),
    ],
)
def test_bad_options_are_one_sentence(arguments, sentence, capsys):
    assert main(["serve", "nowhere", "--port", "0", *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_a_model_that_is_not_there_is_one_sentence(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "none"), "--port", "0"]) == 1
    assert "none" in capsys.readouterr().err


def test_without_its_packages_the_command_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", "nowhere"]) == 1
    assert "pip install 'lightbert[serve]'" in capsys.readouterr().err


def test_the_help_does_not_import_the_packages_of_the_server():
    code = (
        "import sys; from lightbert.cli import main; main(['serve', '--help']); "
        "sys.exit(','.join({'fastapi', 'pydantic', 'uvicorn', 'torch'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--max-texts" in done.stdout


@needs_onnx
def test_threads_are_those_of_torch_or_of_the_exported_model(tmp_path):
    model = text_model(REVIEWS)
    export(model, tmp_path / "out")
    exported = lightbert.load(tmp_path / "out")
    assert with_threads(exported, 3).threads == 3
    assert with_threads(exported, 0) is exported
    before = torch.get_num_threads()
    try:
        assert with_threads(model, before + 1) is model
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_the_generator_next_to_a_model_fills_in_masks(tmp_path):
    rtd = write_tiny_model(tmp_path / "run" / "final", None, "rtd")
    model = lightbert.load(rtd)
    assert load_generator(str(rtd), model) is None
    write_tiny_model(tmp_path / "run" / "generator", None, "mlm")
    generator = load_generator(str(rtd), model)
    assert [*endpoints_of(model, generator=generator, device="cpu")][:2] == ["suspicion", "fill"]
    mlm = write_tiny_model(tmp_path / "run" / "other", None, "mlm")
    assert load_generator(str(mlm), lightbert.load(mlm)) is None
