"""Inference with programs of torch.export: a .pt2 in PyTorch, a .pte in ExecuTorch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError, required
from lightbert.tasks.predict.forward import CPU_CHUNK, CPU_TOKENS, Array, Arrays

SHORTEST = 3
"""The length of the shortest rows; shorter ones are padded."""

_PER_TOKEN = ("states", "mlm", "rtd", "tokens", "span")


class ProgramRuntime:
    """Runs a program on a CPU: a subclass loads it."""

    batch_tokens, chunk = CPU_TOKENS, CPU_CHUNK

    def __init__(self, head: str, run: Callable[..., Any], *, reads_padding: bool) -> None:
        self.head, self.reads_padding, self._run = head, reads_padding, run

    def running(self) -> AbstractContextManager[object]:
        """No preparation is needed."""
        return nullcontext()

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        """Compute a batch at once."""
        results = self(ids, mask, segments)
        return lambda: results

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Ids, mask and segments [B, T] to the outputs of the head."""
        mask, tokens = np.ones_like(ids, dtype=np.bool_) if mask is None else mask, ids.shape[1]
        missing = max(0, SHORTEST - tokens)
        padded = [np.pad(each, ((0, 0), (0, missing))) for each in (ids, mask, segments)]
        outputs = self._outputs(*padded)
        return tuple(each[:, :tokens] for each in outputs) if self.head in _PER_TOKEN else outputs

    def _outputs(self, *inputs: NDArray[Any]) -> Arrays:
        import torch

        with torch.inference_mode():
            return tuple(each.numpy() for each in self._run(*(torch.from_numpy(each) for each in inputs)))


class Pt2Runtime(ProgramRuntime):
    """Runs a model.pt2 in PyTorch."""

    def __init__(self, path: Path, head: str, *, reads_padding: bool = False) -> None:
        from lightbert.tasks.predict.pt2_archive import Pt2Program

        super().__init__(head, Pt2Program(path), reads_padding=reads_padding)


class PteRuntime(ProgramRuntime):
    """Runs a model.pte in ExecuTorch, row by row.

    threads: the number of threads of all programs of the process; 0 = ExecuTorch's default.
    trace: record the time of every operator.
    """

    def __init__(self, path: Path, head: str, *, threads: int = 0, trace: bool = False) -> None:
        with required(f"'{path}' requires executorch", "lightbert[executorch]"):
            from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
            from executorch.runtime import Runtime
        if threads:
            _unsafe_reset_threadpool(threads)
        try:
            # Given only for a trace, because older versions don't have the option.
            options = {"enable_etdump": True} if trace else {}
            self._program = Runtime.get().load_program(path, **options)
            method = self._program.load_method("forward")
        # The runtime raises nothing more specific.
        except Exception as error:
            raise InputError(f"ExecuTorch can't read '{path}' ({error}); export or copy it again") from error
        # Rows run one by one, so there is no reason to pad them to the length of others.
        super().__init__(head, lambda *inputs: method.execute(list(inputs)), reads_padding=True)

    def write_trace(self, path: Path) -> None:
        """Write what was recorded so far, in ExecuTorch's format."""
        # The second file is for values of tensors; none are recorded, and it is not written.
        self._program.write_etdump_result_to_file(str(path), str(path.with_suffix(".values")))

    def _outputs(self, *inputs: NDArray[Any]) -> Arrays:
        split = (np.split(each, len(each)) for each in inputs)
        rows = [super(PteRuntime, self)._outputs(*row) for row in zip(*split, strict=True)]
        return tuple(np.concatenate(each) for each in zip(*rows, strict=True))
