"""Time per operator of an ONNX file, by the profiler of ONNX Runtime."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lightbert.bench.latency_files import Inputs
from lightbert.tasks.predict.onnx_runtime import Session

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
