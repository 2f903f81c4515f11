"""docs/serving.md is true: its options, paths, limits and answers are those of the server."""

import json
import re
from dataclasses import fields
from pathlib import Path

from servers import running, text_model

from lightbert.commands.serve import Config
from lightbert.serve.api import ERRORS
from lightbert.serve.batching import Limits
from lightbert.tasks.kinds.classify import Classify

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def test_every_option_of_the_command_exists():
    options = {f"--{field.name.replace('_', '-')}" for field in fields(Config)}
    own = re.sub(r"docker stop --time|pip install .*|lightbert export.*|`--head states`", "", PAGE)
    assert set(re.findall(r"--[a-z][a-z-]+", own)) <= options | {"--no-cache-dir", "--no-deps"}


def test_the_limits_are_the_defaults_of_the_command_and_of_the_server():
    config, limits = Config("model"), Limits()
    assert (config.max_bytes, config.max_texts, config.max_tokens) == (limits.body, limits.texts, limits.tokens)
    assert (config.queue, config.timeout) == (limits.queue, limits.timeout)
    for sentence in (
        f"`--max-bytes`, {limits.body >> 20} MiB",
        f"`--max-texts`, {limits.texts}",
        f"`--max-tokens`, {limits.tokens:,}",
        f"`--queue` ({limits.queue})",
        f"`--timeout` ({limits.timeout:g})",
        f"{limits.connections:,} connections",
        f"waits {limits.window * 1000:g} ms",
    ):
        assert sentence in PAGE


def test_the_statuses_are_those_of_the_api():
    documented = set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE))
    assert documented == ERRORS.keys()


def test_the_paths_and_the_first_answer_are_those_of_the_server():
    [example] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    with running(text_model(Classify(("bad", "good")))) as client:
        paths = client.get("/openapi.json").json()["paths"]
        request = re.search(r"-d '(.*?)'", PAGE)[1]
        answer = client.post("/v1/predict", content=request, headers={"content-type": "application/json"}).json()
    documented = {path.replace("NAME", "{name}") for path in re.findall(r"(?:GET |POST |, )`?(/[\w/]*)`", PAGE)}
    assert documented - {"/docs", "/openapi.json"} == paths.keys()
    [shown], [found] = json.loads(example)["predictions"], answer["predictions"]
    assert shown.keys() == found.keys()
    assert shown["probabilities"].keys() == found["probabilities"].keys()


def test_the_proxy_retries_posts_and_waits_longer_than_the_server():
    [proxy] = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    [retried] = re.findall(r"proxy_next_upstream (.*);", proxy)
    # nginx passes a POST to another process only with non_idempotent.
    assert {"error", "http_429", "non_idempotent"} <= set(retried.split())
    assert int(re.search(r"proxy_read_timeout (\d+)s;", proxy)[1]) > Limits().timeout
    assert re.search(r"client_max_body_size (\d+)m;", proxy)[1] == str(Limits().body >> 20)
    assert "ssl_certificate " in proxy or " ssl;" not in proxy


def test_systemd_waits_longer_than_the_server():
    [unit] = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit)[1]) > Limits().timeout
