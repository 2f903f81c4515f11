"""The aims for latency: which are reached, and for the others the operators that set the limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.latency import Settings, measure
from benchmarks.latency_files import EXECUTORCH, ONNX, encoder_of, onnx_file, slow_file
from benchmarks.operators import DELEGATE_CALL, Profile, profile, profile_program
from lightbert.deploy.latency import Measurement, random_text


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
    """Ours and the other one by operator, if the aim is missed in ONNX Runtime or ExecuTorch."""

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
            profiled = ratio > aim.most and aim.runtimes <= {*ONNX, *EXECUTORCH}
            operators = _operators(aim, folder, threads, rounds) if profiled else None
            yield Outcome(aim, ratio, operators)


def _times(aims: Sequence[Aim], folder: Path, *, threads: int, rounds: int) -> dict[Candidate, float]:
    """The medians of the times of the candidates relative to the first one, all in one run."""
    wanted = {(each.model, each.runtime) for aim in aims for each in (aim.other, aim.ours)}
    models, runtimes = (tuple(dict.fromkeys(each)) for each in zip(*sorted(wanted), strict=True))
    found = measure(Settings(models, runtimes, aims[0].length, threads, rounds, tuple(sorted(wanted))), folder)
    return {Candidate(row.model, row.runtime): _relative(row, threads) for row in found.rows}


def _relative(row: Measurement, threads: int) -> float:
    """With one thread the CPU time, which other processes disturb less."""
    return row.cpu_ratio if threads == 1 else row.ratio


def _operators(aim: Aim, folder: Path, threads: int, runs: int) -> tuple[Profile, Profile]:
    ours, other = (_profile(each, aim.length, folder, threads, runs) for each in (aim.ours, aim.other))
    return ours, other


def _profile(candidate: Candidate, length: int, folder: Path, threads: int, runs: int) -> Profile:
    model, runtime = candidate.model, candidate.runtime
    if runtime in EXECUTORCH:
        return profile_program(slow_file(model, runtime, folder), length, threads=threads, runs=runs)
    return profile(
        onnx_file(model, runtime, encoder_of(model), folder), random_text(length), threads=threads, runs=runs
    )


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
    if any(aim.runtimes & set(EXECUTORCH) for aim, _ in found):
        yield (
            "Operators of ExecuTorch have small letters, those of XNNPACK capitals, with layout and types: QP8 are "
            "inputs that the operator itself quantizes in each call, QD8 and, on x86, QDU8 inputs that were quantized "
            "just before it, QC8W int8 weights with a scale per output. "
            f"{DELEGATE_CALL} is the time of ExecuTorch's calls of XNNPACK outside of XNNPACK's operators."
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
