"""transformers' pipeline behind the HTTP server of `lightbert serve`, for comparison.

    python -m benchmarks.pipeline_server FOLDER [--threads 1] [--together] [--queue 256]

Requests are read, checked, queued and answered as by `lightbert serve`. The pipeline computes one request after
another, or with --together all requests that wait as one batch.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import text_classifier
from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.serve.batching import Limits
from lightbert.serve.endpoints import Endpoint, Prepared, require_strings
from lightbert.serve.requests import Texts
from lightbert.serve.server import bind, serve
from lightbert.serve.service import Service

Classify = Callable[[Sequence[str]], list[dict[str, Any]]]

# More than the requests of a round have, so that all of them are one batch.
_TOGETHER = 4096


@dataclass(frozen=True)
class _Texts(Prepared):
    """The texts of a request; the pipeline tokenizes them."""

    texts: Sequence[str] = ()


class _PipelineEndpoint:
    """``/v1/predict`` for a pipeline, which is called by the service's `compute` instead of a runtime."""

    name, key = "predict", "predictions"
    takes = 'texts: "…"'
    example = "A quiet film, beautifully made, that stays with you."
    body = Texts
    runtime: Any = None
    encoder: Any = None

    def prepare(self, texts: Sequence[Any], options: Mapping[str, Any]) -> Prepared:
        """Check the texts."""
        return _Texts(Features.of([], []), lambda _: [], texts=require_strings(texts))


def pipeline_service(name: str, classify: Classify, limits: Limits, *, together: bool) -> Service:
    """A service whose answers are computed by a pipeline, request by request or all that wait in one call."""

    def compute(_: Endpoint, requests: Sequence[Prepared]) -> list[list[Any]]:
        parts = [request.texts for request in requests if isinstance(request, _Texts)]
        if not together:
            return [list(classify(part)) for part in parts]
        answers = iter(classify([text for part in parts for text in part]))
        return [[next(answers) for _ in part] for part in parts]

    return Service(name, {"predict": _PipelineEndpoint()}, limits, compute)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a folder in the Hugging Face layout on a free port of the loopback address."""
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline_server", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", default=1, type=int, help="threads of torch")
    parser.add_argument("--together", action="store_true", help="compute all requests that wait as one batch")
    parser.add_argument("--queue", default=256, type=int, help="requests that may wait")
    given = parser.parse_args(arguments)
    try:
        classify = text_classifier(given.folder, batch=_TOGETHER if given.together else 1)
        import torch

        torch.set_num_threads(given.threads)
        service = pipeline_service(given.folder.name, classify, Limits(queue=given.queue), together=given.together)
        service.warm_up()
        serve(service, bind("127.0.0.1", 0), lambda url: print(f"serving at {url}", file=sys.stderr, flush=True))
    except InputError as error:
        print(f"lightbert: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
