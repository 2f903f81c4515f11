"""Time per operator of an ONNX file, by the profiler of ONNX Runtime."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.bench.latency_files import Inputs
from lightbert.tasks.predict.onnx_runtime import Session

PRODUCTS = frozenset(
    {
        "Attention",
        "DynamicQuantizeMatMul",
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
"""The operators of linear layers and attention, which every runtime must compute; others move or change values."""


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
    shortest: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for event in events:
        name = event["name"]
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            shortest[name] = min(event["dur"] / 1e3, shortest.get(name, float("inf")))
            kinds[name] = event["args"]["op_name"]
    sums: dict[str, float] = defaultdict(float)
    for name, time in shortest.items():
        sums[kinds[name]] += time
    return Profile(dict(sorted(sums.items(), key=lambda each: -each[1])), len(shortest))
