"""`lightbert serve` under load, compared with a bare loop of `model.predict` on the same cores.

    python -m lightbert.bench.serving MODEL [--clients 1,8,32] [--seconds 5] [--texts 1] [--threads 1] [--overload 0]

Starts the server as a process on the loopback address and sends requests from this process: texts of 4 to 60 random
words. The loop predicts the same requests, one call each; the batched loop predicts as many requests per call as there
are clients, which is the most that a server could do. --overload SECONDS adds a run with four times as many clients as
the queue has places: requests are answered or get a 429, none is lost, and the memory of the server is compared.
"""

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightbert.bench.http_clients import Load, run_clients
from lightbert.errors import InputError

_WORDS = (
    "train",
    "was",
    "late",
    "again",
    "and",
    "we",
    "waited",
    "an",
    "hour",
    "at",
    "the",
    "station",
    "then",
    "walked",
)
_REQUESTS = 512
_QUEUE = 8
_LONGEST = 600.0


def make_requests(texts: int, count: int = _REQUESTS, seed: int = 0) -> list[list[str]]:
    """Requests of random words, the same in every run."""
    choose = random.Random(seed)
    return [[" ".join(choose.choices(_WORDS, k=choose.randint(4, 60))) for _ in range(texts)] for _ in range(count)]


@contextmanager
def server(model: str, threads: int, *options: str) -> Iterator[tuple[int, int]]:
    """A server on the loopback address: its port and its process id."""
    command = [sys.executable, "-m", "lightbert", "serve", model, "--port", "0", "--device", "cpu", *options]
    command += ["--threads", str(threads)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if not found:
            raise InputError(f"the server did not start: {line}{process.stderr.read()}".strip())
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.communicate()


def loop_speed(work: Callable[[list[str]], Any], requests: Sequence[list[str]], group: int, seconds: float) -> float:
    """Texts per second of a loop that computes `group` requests per call."""
    groups = [
        [text for request in requests[start : start + group] for text in request]
        for start in range(0, len(requests), group)
    ]
    work(groups[0])
    texts, calls, start = 0, 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        texts += len(groups[calls % len(groups)])
        work(groups[calls % len(groups)])
        calls += 1
    return texts / elapsed


def resident_megabytes(process: int) -> float:
    """The resident memory of a process, on Linux."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print one line per number of clients."""
    parser = argparse.ArgumentParser(prog="lightbert.bench.serving", description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,8,32", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("--seconds", default=5.0, type=float, help="the time of each run")
    parser.add_argument("--texts", default=1, type=int, help="texts per request")
    parser.add_argument("--threads", default=1, type=int, help="threads of the model")
    parser.add_argument("--overload", default=0.0, type=float, help="seconds of overload")
    given = parser.parse_args(arguments)
    if not 0 < given.seconds <= _LONGEST or not 0 <= given.overload <= _LONGEST:
        parser.error(f"--seconds and --overload must be at most {_LONGEST:g}")
    try:
        _measure(given)
    except InputError as error:
        print(f"lightbert: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(given: argparse.Namespace) -> None:
    requests = make_requests(given.texts)
    path, work = _work(given.model, given.threads)
    single = loop_speed(work, requests, 1, given.seconds)
    print(f"loop, one request per call: {single:,.0f} texts/s")
    for clients in given.clients:
        batched = loop_speed(work, requests, clients, given.seconds)
        with server(given.model, given.threads) as (port, _):
            run_clients(port, path, requests, clients, min(1.0, given.seconds))
            load = run_clients(port, path, requests, clients, given.seconds)
        print(
            f"{clients} clients: {load.requests_per_second:,.0f} requests/s, p50 {load.percentile(50):.1f} ms, "
            f"p99 {load.percentile(99):.1f} ms, {load.texts_per_second:,.0f} texts/s: "
            f"{load.texts_per_second / single:.0%} of the loop, {load.texts_per_second / batched:.0%} of the loop "
            f"with {clients} requests per call{_problems(load)}"
        )
    if given.overload:
        _overload(given, path, requests)


def _overload(given: argparse.Namespace, path: str, requests: Sequence[list[str]]) -> None:
    with server(given.model, given.threads, "--queue", str(_QUEUE)) as (port, process):
        run_clients(port, path, requests, 4 * _QUEUE, min(5.0, given.overload))
        before = resident_megabytes(process)
        load = run_clients(port, path, requests, 4 * _QUEUE, given.overload)
        after = resident_megabytes(process)
    print(
        f"overload, {load.clients} clients for {load.seconds:.0f} s with a queue of {_QUEUE}: "
        f"{load.statuses[200]:,} answered, {load.statuses[429]:,} got 429{_problems(load)}; "
        f"p99 {load.percentile(99):.1f} ms; memory {before:,.0f} to {after:,.0f} MiB"
    )


def _problems(load: Load) -> str:
    others = {status: count for status, count in load.statuses.items() if status not in (200, 429)}
    return "".join((f", other statuses: {others}" if others else "", f", {load.wrong} wrong" if load.wrong else ""))


def _work(name: str, threads: int) -> tuple[str, Callable[[list[str]], Any]]:
    """The path to measure, and the same work without a server."""
    from lightbert.serve.endpoints import endpoints_of
    from lightbert.serve.threads import with_threads
    from lightbert.tasks.predict.loading import load

    model = with_threads(load(name), threads)
    predict = endpoints_of(model, device="cpu").get("predict")
    if predict is None:
        return "/v1/embed", model.encode
    if not isinstance(predict.example, str):
        raise InputError(
            "the model must take single texts, got one for pairs of texts or questions; choose another one"
        )
    return "/v1/predict", model.predict


if __name__ == "__main__":
    sys.exit(main())
