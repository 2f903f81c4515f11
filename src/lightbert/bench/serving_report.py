"""The report of the load test: requests and texts per second, percentiles, and the behaviour under overload."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

SERVE, LOOP, GROUPED_LOOP = "lightbert serve", "model.predict, one request per call", "model.predict, grouped requests"
PIPELINE, GROUPED_PIPELINE = "transformers' pipeline, one request per call", "transformers' pipeline, grouped requests"


@dataclass(frozen=True)
class Rate:
    """One system with a number of clients; the loops group as many requests per call."""

    system: str
    clients: int
    requests_per_second: float
    texts_per_second: float
    p50: float
    p99: float


@dataclass(frozen=True)
class Overload:
    """The server at twice its capacity: every request is answered or rejected with 429."""

    seconds: float
    capacity: float
    """Requests per second before."""
    offered: float
    """Requests per second that the clients sent."""
    answered: int
    rejected: int
    lost: int
    wrong: int
    other: dict[int, int]
    """Other statuses."""
    p99: float
    megabytes: tuple[float, ...]
    """Resident memory of the server in each tenth of the time."""

    def sentence(self) -> str:
        """The result in words."""
        others = "".join(f", {count:,} with status {status}" for status, count in self.other.items())
        first, middle, last = (self.megabytes[place] for place in (0, len(self.megabytes) // 2, -1))
        return (
            f"{self.seconds:.0f} s at {self.offered:,.0f} requests/s ({self.offered / self.capacity:.1f} × the "
            f"capacity): {self.answered:,} answered, {self.rejected:,} got 429, {self.lost} lost, "
            f"{self.wrong} wrong{others}; p99 {self.p99:,.0f} ms; memory {first:,.0f} MiB in the first tenth of the "
            f"time, {middle:,.0f} in the middle, {last:,.0f} in the last"
        )


@dataclass(frozen=True)
class ServingReport:
    """All measurements of one load test."""

    model: str
    texts: int
    threads: int
    rounds: int
    rates: tuple[Rate, ...]
    skipped: str
    """Why transformers' pipeline was not measured."""
    overload: Overload | None

    def metrics(self) -> dict[str, float]:
        """The rate of the server with each number of clients, and relative to the other systems."""
        found = {}
        for mine in self._of(SERVE):
            n = mine.clients
            found[f"requests_per_second_{n}"] = mine.requests_per_second
            found[f"p50_ms_{n}"], found[f"p99_ms_{n}"] = mine.p50, mine.p99
            for name, systems in _RATIOS.items():
                others = [each.texts_per_second for each in self.rates if each.clients == n and each.system in systems]
                if others:
                    found[f"{name}_{n}"] = mine.texts_per_second / max(others)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"metrics": self.metrics(), **asdict(self)}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table("clients", "system", "requests/s", "texts/s", "p50 ms", "p99 ms", "serve relative to it")
        table.title = (
            f"{self.model}, {self.texts} texts per request, {self.threads} threads, median of {self.rounds} rounds"
        )
        served = {each.clients: each.texts_per_second for each in self._of(SERVE)}
        for row in self.rates:
            table.add_row(
                str(row.clients),
                row.system,
                f"{row.requests_per_second:,.1f}",
                f"{row.texts_per_second:,.1f}",
                f"{row.p50:.1f}",
                f"{row.p99:.1f}",
                "" if row.system == SERVE else f"{served[row.clients] / row.texts_per_second:.2f} ×",
            )
        lines: list[RenderableType] = [table]
        if self.skipped:
            lines.append(f"transformers' pipeline was not measured: {self.skipped}")
        if self.overload:
            lines.append(f"overload: {self.overload.sentence()}")
        return Group(*lines)

    def _of(self, system: str) -> Iterator[Rate]:
        return (each for each in self.rates if each.system == system)


_RATIOS = {
    "to_loop": (LOOP,),
    "to_grouped_loop": (GROUPED_LOOP,),
    # The faster of the two.
    "to_pipeline": (PIPELINE, GROUPED_PIPELINE),
}
