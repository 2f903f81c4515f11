"""Time per operator of an ONNX file, by the profiler of ONNX Runtime."""

import json
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.thread_process import call_with_threads
from lightbert.deploy.latency import Inputs, random_text
from lightbert.errors import required
from lightbert.processes import Report, has_threads
from lightbert.tasks.predict.exported import STATES, PteRuntime, Session

PRODUCTS = frozenset(
    {
        "Attention",
        "Batch Matrix Multiply",
        "DynamicQuantizeMatMul",
        "Fully Connected",
        "FusedGemm",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QGemm",
        "QLinearMatMul",
        "Softmax",
    }
)
"""The operators of linear layers and attention in ONNX Runtime and XNNPACK, which every runtime must compute.

Others move or change values.
"""


class NodeTime(NamedTuple):
    """The time of one node of a file in one run."""

    node: Hashable
    kind: str
    """The name of its operator; in XNNPACK with types and layout in parentheses."""
    milliseconds: float


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
        return sum(time for kind, time in self.milliseconds.items() if kind.partition(" (")[0] in PRODUCTS)


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
    return sum_of_shortest(
        NodeTime(event["name"], event["args"]["op_name"], event["dur"] / 1e3)
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    )


def sum_of_shortest(times: Iterable[NodeTime]) -> Profile:
    """The profile of nodes that ran several times."""
    shortest: dict[Hashable, NodeTime] = {}
    for time in times:
        shortest[time.node] = min(time, shortest.get(time.node, time), key=lambda each: each.milliseconds)
    sums: dict[str, float] = defaultdict(float)
    for time in shortest.values():
        sums[time.kind] += time.milliseconds
    return Profile(dict(sorted(sums.items(), key=lambda each: -each[1])), len(shortest))


DELEGATE_CALL = "DELEGATE_CALL"
"""ExecuTorch's name of a call of XNNPACK; in a profile, the time of these calls outside of XNNPACK's operators."""

_KERNEL = "native_call_"


@dataclass(frozen=True)
class Event:
    """A step of a program, the kernel that it runs, or an operator of XNNPACK within it."""

    step: tuple[int, int]
    name: str
    milliseconds: float
    delegated: bool = False
    """Whether it is an operator of XNNPACK."""


def profile_program(path: Path, length: int, *, threads: int, runs: int) -> Profile:
    """Run a .pte file several times on one text.

    This happens in another process if this one was started with another number of threads: ExecuTorch has one number
    for all programs of a process.
    """
    if has_threads(threads):
        return _profile(path, length, threads, runs)
    arguments = [str(path), length, threads, runs]
    content = call_with_threads(f"{__name__}:profile_as_json", arguments, threads, lambda done: None)
    return Profile(**json.loads(content))


def profile_as_json(report: Report, path: str, length: int, threads: int, runs: int) -> str:
    """Profile in this process, and return the profile as JSON."""
    return json.dumps(asdict(_profile(Path(path), length, threads, runs)))


def _profile(path: Path, length: int, threads: int, runs: int) -> Profile:
    program, inputs = PteRuntime(path, STATES, threads=threads, trace=True), random_text(length)
    for _ in range(runs):
        program(*inputs)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.etdp"
        program.write_trace(trace)
        return program_summary(_runs(trace.read_bytes()))


def _runs(trace: bytes) -> Iterator[list[Event]]:
    """The events of each run."""
    with warnings.catch_warnings():
        # About ExecuTorch's own insides.
        warnings.simplefilter("ignore")
        with required("the profile of a .pte file requires executorch", "lightbert[executorch]"):
            from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
        runs = deserialize_from_etdump_flatcc(trace).run_data
    for run in runs:
        found = [each.profile_event for each in run.events or () if each.profile_event]
        yield [
            Event(
                (each.chain_index, each.instruction_id),
                each.delegate_debug_id_str or each.name,
                (each.end_time - each.start_time) / 1e6,
                each.delegate_debug_id_str is not None,
            )
            for each in found
            # The others are about the whole program.
            if each.chain_index >= 0
        ]


def program_summary(runs: Iterable[Iterable[Event]]) -> Profile:
    """The profile of the events of several runs."""
    times = [time for run in runs for time in _times(run)]
    calls = {time.node for time in times if time.kind == DELEGATE_CALL}
    found = sum_of_shortest(times)
    return replace(found, nodes=found.nodes - len(calls))


def _times(run: Iterable[Event]) -> Iterator[NodeTime]:
    steps: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in run:
        steps[event.step].append(event)
    for step, events in steps.items():
        kernels = [each for each in events if each.name.startswith(_KERNEL)]
        inner = [each for each in events if each.delegated]
        for event in inner:
            yield NodeTime((step, event.name), _operator(event.name), event.milliseconds)
        for event in events:
            if event not in inner and event not in kernels:
                kind = _kernel(kernels[0].name) if kernels else event.name
                # XNNPACK rounds to microseconds.
                rest = max(0.0, event.milliseconds - sum(each.milliseconds for each in inner))
                yield NodeTime((step, event.name), kind, rest)


def _operator(name: str) -> str:
    """`Fully Connected (NC, F32) GEMM #2` is the second one of its call; lists of operators have commas already."""
    return name.partition(" #")[0].replace(",", "")


def _kernel(name: str) -> str:
    """`native_call_where.self_out` is a variant of the operator `where`."""
    return name.removeprefix(_KERNEL).partition(".")[0]
