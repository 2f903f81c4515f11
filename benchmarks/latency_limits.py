"""The aims for latency: which are reached, and for the others the operators that set the limit."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.latency import Settings, measure, relative_time
from benchmarks.latency_files import ONNX, encoder_of, onnx_file
from lightbert.deploy.latency import Inputs, random_text
from lightbert.tasks.predict.exported import Session

PRODUCTS = frozenset(
    {
        *("Attention", "DynamicQuantizeMatMul", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger"),
        *("MatMulIntegerToFloat", "QGemm", "QLinearMatMul", "Softmax"),
    }
)
"""The operators of linear layers and attention, which every file must compute. Others move or change values."""


@dataclass(frozen=True)
class Profile:
    """The time of a file by operator: the sum over its nodes of the shortest time of each node."""

    milliseconds: dict[str, float]
    """Operator -> milliseconds, the longest first."""
    nodes: int

    @property
    def total(self) -> float:
        """Milliseconds of all operators."""
        return sum(self.milliseconds.values())

    @property
    def products(self) -> float:
        """Milliseconds of matrix products and attention."""
        return sum(time for kind, time in self.milliseconds.items() if kind in PRODUCTS)


def profile(content: bytes, inputs: Inputs, *, threads: int, runs: int) -> Profile:
    """Run an ONNX file several times.

    The shortest time of a node is hardly disturbed by other processes, because a node takes less than a millisecond.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = Session(content, threads, profile=str(Path(folder) / "operators"))
        for _ in range(runs):
            session(*inputs)
        return summary(json.loads(Path(session.end_profile()).read_text()))


def summary(events: Iterable[dict[str, Any]]) -> Profile:
    """The profile of the events that ONNX Runtime wrote."""
    shortest: dict[str, tuple[float, str]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            time = event["dur"] / 1e3, event["args"]["op_name"]
            shortest[event["name"]] = min(time, shortest.get(event["name"], time))
    sums: dict[str, float] = defaultdict(float)
    for milliseconds, kind in shortest.values():
        sums[kind] += milliseconds
    return Profile(dict(sorted(sums.items(), key=lambda operator: -operator[1])), len(shortest))


@dataclass(frozen=True)
class Candidate:
    """A model in a runtime of `lightbert bench latency`."""

    model: str
    runtime: str

    def __str__(self) -> str:
        return f"{self.model}, {self.runtime}"


@dataclass(frozen=True)
class Aim:
    """A bound on the time of a model relative to that of another one, for one text."""

    ours: Candidate
    other: Candidate
    length: int
    most: float
    """The largest ratio of the times."""

    @property
    def runtimes(self) -> frozenset[str]:
        """The runtimes of both."""
        return frozenset({self.ours.runtime, self.other.runtime})

    @property
    def group(self) -> tuple[int, str]:
        """Aims of one group are measured in one run, so that models alternate with those they are compared with."""
        return self.length, self.other.model


def _faster(model: str, runtime: str, other: str, other_runtime: str, times: float, length: int = 128) -> Aim:
    return Aim(Candidate(model, runtime), Candidate(other, other_runtime), length, 1 / times)


def _at_most(ratio: float, model: str, other: str, runtime: str, length: int) -> Aim:
    return Aim(Candidate(model, runtime), Candidate(other, runtime), length, ratio)


AIMS = (
    _at_most(0.73, "mixed-block", "attention-block", "onnx", 512),
    _at_most(0.73, "mixed-block", "attention-block", "int8", 512),
    _at_most(1.0, "mixed-block", "attention-block", "torch", 512),
    _at_most(1.0, "convbert-base", "bert-base", "onnx", 128),
    _at_most(0.9, "convbert-base", "bert-base", "onnx", 512),
    _at_most(0.9, "convbert-base", "bert-base", "int8", 512),
    _at_most(1.0, "convbert-small", "bert-small", "onnx", 128),
    _faster("convbert-small", "onnx", "convbert-small", "peer-onnx", 2.0),
    _faster("convbert-small", "int8", "convbert-small", "peer-int8", 2.0),
    _faster("mobilebert", "onnx", "bert-base", "onnx", 4.0),
    _faster("mobilebert-tiny", "onnx", "bert-base", "onnx", 6.5),
    _faster("mobilebert", "int8", "mobilebert", "onnx", 2.2),
    _faster("convbert-small", "int8", "convbert-small", "onnx", 2.0),
)

EXECUTORCH_AIMS = (
    _faster("mobilebert", "executorch-int8", "mobilebert", "executorch", 2.2),
    _faster("convbert-small", "executorch-int8", "convbert-small", "executorch", 2.0),
)
"""Those that require ExecuTorch."""


@dataclass(frozen=True)
class Outcome:
    """The ratio that was found for an aim."""

    aim: Aim
    ratio: float
    operators: tuple[Profile, Profile] | None = None
    """Ours and the other one by operator, if the aim is missed in ONNX Runtime."""

    @property
    def reached(self) -> bool:
        """Whether the ratio is at most that of the aim."""
        return self.ratio <= self.aim.most


def outcomes(aims: Sequence[Aim], folder: Path, *, threads: int, rounds: int) -> Iterator[Outcome]:
    """Measure all aims group by group, and profile those that are missed; files are kept in the folder."""
    groups = dict.fromkeys(aim.group for aim in aims)
    for group in groups:
        members = [aim for aim in aims if aim.group == group]
        times = _times(members, folder, threads=threads, rounds=rounds)
        for aim in members:
            ratio = times[aim.ours] / times[aim.other]
            profiled = ratio > aim.most and aim.runtimes <= {*ONNX}
            operators = _operators(aim, folder, threads, rounds) if profiled else None
            yield Outcome(aim, ratio, operators)


def _times(aims: Sequence[Aim], folder: Path, *, threads: int, rounds: int) -> dict[Candidate, float]:
    """The medians of the times of the candidates relative to the first one, all in one run."""
    wanted = {(each.model, each.runtime) for aim in aims for each in (aim.other, aim.ours)}
    models, runtimes = (tuple(dict.fromkeys(each)) for each in zip(*sorted(wanted), strict=True))
    found = measure(Settings(models, runtimes, aims[0].length, threads, rounds, tuple(sorted(wanted))), folder)
    return {Candidate(row.model, row.runtime): relative_time(row, threads) for row in found.rows}


def _operators(aim: Aim, folder: Path, threads: int, runs: int) -> tuple[Profile, Profile]:
    ours, other = (
        profile(
            onnx_file(each.model, each.runtime, encoder_of(each.model), folder),
            random_text(aim.length),
            threads=threads,
            runs=runs,
        )
        for each in (aim.ours, aim.other)
    )
    return ours, other


def section(found: Sequence[Outcome], threads: str) -> str:
    """The outcomes as a section of a page, in Markdown; `threads` says how many, in words."""
    lines = [
        f"## Limits, {threads}",
        "The aims of this project, as the time of the first model relative to that of the second one, in one run.",
        "",
        "| | compared with | tokens | aim | found | |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for each in found:
        aim = each.aim
        lines.append(
            f"| {aim.ours} | {aim.other} | {aim.length} | ≤ {aim.most:.2f} | {each.ratio:.2f} | "
            f"{'reached' if each.reached else f'missed by {each.ratio / aim.most - 1:.0%}'} |"
        )
    missed = [(each.aim, each.operators) for each in found if each.operators is not None]
    if missed:
        lines += ["", *_missed(missed)]
    return "\n".join([*lines, ""])


def _missed(found: Sequence[tuple[Aim, tuple[Profile, Profile]]]) -> Iterator[str]:
    yield (
        "Where an aim is missed, the time of both files by operator: the sum over nodes of the shortest time of each. "
        "Products are the operators of linear layers and attention. The last two columns are the ratios that would be "
        "left if our file consisted of its products only, and if both files did."
    )
    yield ""
    yield "| | compared with | ms | of which products | ms | of which products | only ours | both |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for aim, (ours, other) in found:
        yield (
            f"| {aim.ours} | {aim.other} | {ours.total:.1f} | {ours.products:.1f} | {other.total:.1f} | "
            f"{other.products:.1f} | {_ratio(ours.products, other.total)} | {_ratio(ours.products, other.products)} |"
        )
    yield ""
    for aim, profiles in found:
        for candidate, operators in zip((aim.ours, aim.other), profiles, strict=True):
            times = ", ".join(f"{kind} {time:.1f}" for kind, time in list(operators.milliseconds.items())[:8])
            yield f"- {candidate}, {aim.length} tokens, {operators.nodes} nodes, milliseconds: {times}"


def _ratio(time: float, other: float) -> str:
    """Without products, the runtime doesn't record the operators that compute them."""
    return f"{time / other:.2f}" if time and other else "–"
