"""`lightbert serve`: a model behind an HTTP API, with a page for the browser."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lightbert.commands.options import check_model, options
from lightbert.commands.report import Report, show
from lightbert.errors import InputError
from lightbert.processes import set_threads


@dataclass(frozen=True)
class Config:
    """A model, an address, and the limits of the server."""

    model: Annotated[
        str,
        typer.Argument(help="A model: a folder, convbert-small-en, an exported file, or org/name on the Hub."),
    ]
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is reachable from other machines.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(help="The port to listen on; 0: any free one.")] = 8000
    length: Annotated[int, typer.Option(help="Maximum number of tokens per text; 0: as in fine-tuning.")] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"
    threads: Annotated[int, typer.Option(help="Threads of the model on a CPU; 0: chosen by the runtime.")] = 0
    queue: Annotated[int, typer.Option(help="Requests that may wait; more are answered with 429.")] = 256
    max_bytes: Annotated[int, typer.Option(help="Maximum size of a request.")] = 1 << 20
    max_texts: Annotated[int, typer.Option(help="Maximum number of texts per request.")] = 256
    max_tokens: Annotated[int, typer.Option(help="Maximum number of tokens per request.")] = 32768
    timeout: Annotated[float, typer.Option(help="Maximum number of seconds until a request is answered.")] = 60.0
    api_key: Annotated[
        str, typer.Option(help="Answer only requests with 'Authorization: Bearer KEY'.", envvar="LIGHTBERT_API_KEY")
    ] = ""

    def __post_init__(self) -> None:
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InputError("--api-key must consist of printable ASCII characters, because it is sent in a header")
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port must be in [0, 65535], got {self.port}")
        if self.threads < 0:
            raise InputError(f"--threads must be >= 0, got {self.threads}")
        for name in ("queue", "max_bytes", "max_texts", "max_tokens", "timeout"):
            if getattr(self, name) <= 0:
                raise InputError(f"--{name.replace('_', '-')} must be > 0, got {getattr(self, name)}")


def run(config: Config, ready: Callable[[str], None] = lambda url: None) -> Report:
    """Serve until a signal stops the server; `ready` is called with its URL when it accepts connections."""
    from lightbert.errors import required

    check_model(config.model)
    with required("serve requires fastapi, uvicorn and prometheus_client", "lightbert[serve]"):
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    from lightbert.serve.batching import Limits
    from lightbert.serve.metrics import value_of
    from lightbert.serve.models import endpoints_of, load_generator, with_threads
    from lightbert.serve.server import bind, serve
    from lightbert.serve.service import Service
    from lightbert.tasks.predict.exported import load_on

    limits = Limits(
        body=config.max_bytes,
        texts=config.max_texts,
        tokens=config.max_tokens,
        queue=config.queue,
        timeout=config.timeout,
    )
    with bind(config.host, config.port) as bound:
        model = with_threads(load_on(config.model, config.device), config.threads)
        generator = load_generator(config.model, model)
        endpoints = endpoints_of(model, generator=generator, device=config.device, length=config.length)
        service = Service(_name(config.model), endpoints, limits)
        service.warm_up()
        serve(service, bound, ready, config.api_key)
    requests, texts = (int(value_of(metric)) for metric in (service.metrics.requests, service.metrics.texts))
    counts = f"{requests:,} request{'s' * (requests != 1)} with {texts:,} text{'s' * (texts != 1)}"
    return Report({"requests": requests, "texts": texts}, [f"stopped after {counts}"])


@options(Config, Annotated[bool, typer.Option("--json", help="At the end, print the number of requests as JSON.")])
def command(config: Config, json: bool) -> None:
    """Serve a model over HTTP: a JSON API, and a page for the browser at the same address.

    POST /v1/predict {"texts": ["…"]} answers {"predictions": […]}, each as of `lightbert predict`; /v1/embed answers
    vectors, /v1/fill candidates for [MASK], and /v1/suspicion the words that look replaced, as far as the model has the
    heads for it; /v1/attention answers the attention maps of a layer. /v1/embeddings answers OpenAI's clients, /embed,
    /predict and /similarity those of text-embeddings-inference. /docs describes the API, /healthz and /metrics are for
    monitoring.

    Only this machine can reach the server unless --host says otherwise. Requests that arrive within milliseconds share
    batches. SIGTERM or Ctrl+C stops the server after it has answered what it has accepted.
    """
    # Here rather than in `run`: this process does nothing else.
    from lightbert.serve.models import limit_operator_cache

    limit_operator_cache()
    set_threads(config.threads)

    def ready(url: str) -> None:
        line = f"lightbert: serving {config.model} at {url} (page), {url}/docs (API); stop with Ctrl+C"
        print(line, file=sys.stderr, flush=True)

    show(run(config, ready), json=json)


def _name(model: str) -> str:
    """The name that clients see: without the path of a folder, whose last part is often "final"."""
    path = Path(model)
    if not path.exists():
        return model
    folder = path.parent if path.is_file() else path
    parts = folder.resolve().parts
    return "/".join(parts[-2:]) if parts[-1] == "final" else parts[-1]
