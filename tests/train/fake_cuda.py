"""CUDA graphs without a GPU: captured work has no effect, replays run it, and captures fail as those of CUDA do."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightbert.train.cuda_graph import CudaGraphStep
from lightbert.train.step import Step

INVALIDATED = "CUDA error: operation failed due to a previous error during capture"


class FakeCuda:
    """What a test can look at: the calls, the current stream, and whether a capture is under way."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stream = "main"
        self.capturing = False
        self.warns = False

    def wait(self) -> None:
        """What `.item()` does with a tensor on a GPU: an error in a capture, a warning in the debug mode."""
        if self.capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nmore lines")
        if self.warns:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)


def install(patch: pytest.MonkeyPatch) -> FakeCuda:
    """Replace the functions of torch that `CudaGraphStep` calls."""
    fake = FakeCuda()

    def called(name: str, result: Any = None) -> Any:
        return lambda *arguments: (fake.calls.append(name), result)[1]

    stream = SimpleNamespace(device_index=0, wait_stream=lambda other: None)
    patch.setattr(torch.cuda, "Stream", lambda device: stream)
    patch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    patch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    patch.setattr(torch.cuda, "set_stream", lambda stream: setattr(fake, "stream", "main"))
    patch.setattr(torch.cuda, "get_rng_state", lambda device: torch.get_rng_state())
    patch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.set_rng_state(state))
    generator = SimpleNamespace(graphsafe_set_state=called("generator reset"))
    patch.setattr(torch.cuda, "default_generators", (generator,))
    patch.setattr(torch.cuda, "empty_cache", called("cache emptied"))
    patch.setattr(torch.cuda, "synchronize", lambda device: None)
    patch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    patch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    patch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: setattr(fake, "warns", mode == "warn"))
    patch.setattr(torch._C, "_cuda_clearCublasWorkspaces", called("workspaces cleared"), raising=False)
    patch.setattr(torch._C, "_cuda_endAllocateToPool", called("pool ended"), raising=False)
    patch.setattr(torch._C, "_cuda_releasePool", called("pool released"), raising=False)
    patch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace())

    @contextmanager
    def graph(captured: Any, pool: Any, capture_error_mode: str) -> Iterator[None]:
        fake.stream, fake.capturing = "capture", True
        try:
            yield
        except RuntimeError as error:
            # As in torch: the current stream stays that of the capture.
            raise RuntimeError(INVALIDATED) from error
        finally:
            fake.capturing = False
        fake.stream = "main"

    patch.setattr(torch.cuda, "graph", graph)
    return fake


def make_replayable(patch: pytest.MonkeyPatch) -> list[str]:
    """Let captures leave the weights as they are, and replays run the step; returns the kinds of the steps."""
    kinds: list[str] = []
    capture, plain = CudaGraphStep._capture, Step.__call__

    def captured(self: CudaGraphStep, batch: Any) -> Any:
        tensors = [*self.objective.parameters(), *self.optimizers.tensors().values()]
        before, random_state = [tensor.detach().clone() for tensor in tensors], torch.get_rng_state()
        result = capture(self, batch)
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
        torch.set_rng_state(random_state)

        def replay() -> None:
            kinds[-1] = "replayed"
            result.output.copy_(plain(self, result.inputs))

        result.graph.replay = replay
        return result

    call = CudaGraphStep.__call__

    def counted(self: CudaGraphStep, batch: Any) -> Any:
        kinds.append("eager")
        return call(self, batch)

    patch.setattr(CudaGraphStep, "_capture", captured)
    patch.setattr(CudaGraphStep, "__call__", counted)
    return kinds
