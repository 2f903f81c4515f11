"""Inference with ONNX Runtime on a CPU, without torch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError, required
from lightbert.tasks.predict.forward import CPU_CHUNK, CPU_TOKENS, Array, Arrays

_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class Session:
    """An ONNX Runtime session with the inputs of our graphs, on a CPU.

    source: the path of a file, or its content.
    threads: the number of threads of an operator; 0 = one per core.
    profile: the start of the path to which the time of every operator is written; "" = none.
    """

    def __init__(self, source: str | bytes, threads: int = 0, *, profile: str = "") -> None:
        with required("exported models require onnxruntime", "lightbert[export]"):
            import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        # Threads wait actively within a run, which is about 5 % faster; afterwards they would slow down other sessions.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # Errors only: the warnings are about the runtime's own optimizations.
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    @property
    def inputs(self) -> set[str]:
        """The names of the inputs."""
        return {each.name for each in self._session.get_inputs()}

    def end_profile(self) -> str:
        """Write the profile and return its path."""
        path: str = self._session.end_profiling()
        return path

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Ids, mask and segments [B, T] to the outputs."""
        real = np.ones_like(ids) if mask is None else mask.astype(np.int64)
        return tuple(self._session.run(None, {"input_ids": ids, "attention_mask": real, "token_type_ids": segments}))


class OnnxRuntime:
    """Runs a model.onnx that `lightbert export` wrote."""

    batch_tokens, chunk = CPU_TOKENS, CPU_CHUNK

    def __init__(self, path: Path, head: str, *, reads_padding: bool = False, threads: int = 0) -> None:
        self.head, self.reads_padding = head, reads_padding
        try:
            self._session = Session(str(path), threads)
        except InputError:
            raise
        # The classes of ONNX Runtime's errors have no common base class.
        except Exception as error:
            raise InputError(f"ONNX Runtime can't read '{path}' ({error}); export or copy it again") from error
        if self._session.inputs != _INPUTS:
            raise InputError(
                f"the inputs of '{path}' must be {', '.join(sorted(_INPUTS))}, got "
                f"{', '.join(sorted(self._session.inputs))}; export the model with `lightbert export`"
            )

    def running(self) -> AbstractContextManager[object]:
        """No preparation is needed."""
        return nullcontext()

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        """Compute a batch at once."""
        results = self(ids, mask, segments)
        return lambda: results

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Ids, mask and segments [B, T] to the outputs of the head."""
        return self._session(ids, mask, segments)
