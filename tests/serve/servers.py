"""Servers for tests: the application on a free loopback port, in a thread of the test's own process."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tiny_classifiers import tiny_model
from vocabularies import small_tokenizer

from lightbert.models import build, preset
from lightbert.serve.batching import Limits
from lightbert.serve.endpoints import Endpoint
from lightbert.serve.models import endpoints_of
from lightbert.serve.service import Service
from lightbert.tasks.predict.text_model import TextModel

if TYPE_CHECKING:
    import httpx


def text_model(*arguments: Any, **settings: Any) -> TextModel:
    """A tiny model as `lightbert.load` returns it."""
    model = tiny_model(*arguments, **settings)
    return TextModel(model, model.metadata)


def deep_text_model(depth: int, name: str = "convbert-tiny", positions: int = 16) -> TextModel:
    """A pre-trained model of several layers, with a replaced-token head and random weights."""
    config = replace(preset(name), vocab=13, positions=positions, depth=depth)
    built = build(config, heads={"rtd": {}}, seed=1)
    built.tokenizer = small_tokenizer()
    return TextModel(built.eval(), built.metadata)


@contextmanager
def running(
    model: Any, limits: Limits | None = None, *, generator: Any = None, key: str = ""
) -> Iterator["httpx.Client"]:
    """A client of a server that answers for a model."""
    with running_endpoints(endpoints_of(model, generator=generator, device="cpu"), limits, key) as client:
        yield client


@contextmanager
def running_endpoints(
    endpoints: Mapping[str, Endpoint], limits: Limits | None = None, key: str = ""
) -> Iterator["httpx.Client"]:
    """A client of a server with these endpoints."""
    # Imported here because tests are collected without the packages of the extra.
    import httpx
    import uvicorn

    from lightbert.serve.server import bind, server_settings, url_of

    with bind("127.0.0.1", 0) as bound:
        server = uvicorn.Server(server_settings(Service("tiny", endpoints, limits or Limits()), key))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.005)
            with httpx.Client(base_url=url_of(bound), timeout=30, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


class HeldRuntime:
    """A runtime whose batches wait until the test releases them."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.head, self.reads_padding = runtime.head, runtime.reads_padding
        self.batch_tokens, self.chunk = runtime.batch_tokens, runtime.chunk
        self.running = runtime.running
        self.released, self.started = threading.Event(), threading.Event()
        self.rows: list[int] = []
        """The number of rows of each batch."""

    def submit(self, ids: Any, mask: Any, segments: Any) -> Any:
        self.rows.append(len(ids))
        self.started.set()
        assert self.released.wait(30)
        return self._runtime.submit(ids, mask, segments)
