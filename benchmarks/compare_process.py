"""One case of the training benchmark in a process of its own, which runs it whenever it is told to.

Started by `compare` as a file, with the package of any source folder. It therefore imports only what older versions
have as well: the cases. Each line of standard input is a number of calls, answered by a line with the milliseconds of
one of them. The first line that is written says that the case is compiled.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

try:
    cases: Any = importlib.import_module("benchmarks.training_cases")
except ModuleNotFoundError:
    # Versions whose benchmarks are in the package.
    cases = importlib.import_module("lightbert.bench.training_cases")

_WARM = 3


def calls(case: Any, device: torch.device) -> Callable[[int], float]:
    """Compile a case, on a GPU capture it, and return a function that times calls: their number -> ms of one."""
    work = (cases.whole_step if case.rtd else cases.our_pass)(case, device)
    if device.type != "cuda":
        work()
        return lambda count: _on_cpu(work, count)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(_WARM):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return lambda count: _on_gpu(graph, count)


def _on_cpu(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return 1e3 * (time.perf_counter() - start) / count


def _on_gpu(graph: torch.cuda.CUDAGraph, count: int) -> float:
    # The first one, after another process, is not timed.
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / count


def main() -> None:
    """Answer until standard input ends."""
    # What libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    timed = calls(cases.Case(**json.loads(sys.argv[1])), torch.device(sys.argv[2]))
    print("compiled", file=answers, flush=True)
    for line in sys.stdin:
        print(timed(int(line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
