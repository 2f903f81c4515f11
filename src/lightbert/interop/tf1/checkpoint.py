"""Read a TensorFlow checkpoint as named arrays, without the variables that only training needs."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from lightbert.errors import InputError, required

# The slots of Adam and LAMB, both TensorFlow's and the released code's, are named after the variable they belong to.
_TRAINING_VARIABLES = re.compile(
    r".+/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1)|(.+/)?(global_step|beta1_power|beta2_power)"
)


class Checkpoint(Protocol):
    """The interface of a checkpoint; tests implement it with a dictionary of arrays."""

    def names(self) -> Iterable[str]:
        """Return the names of all variables, including optimizer slots."""

    def get(self, name: str) -> NDArray[Any]:
        """Return one variable."""


class TensorFlowCheckpoint:
    """A checkpoint on disk. `prefix` is the common prefix of its files (`.index`, `.data-00000-of-00001`)."""

    def __init__(self, prefix: Path) -> None:
        if not Path(f"{prefix}.index").is_file():
            raise InputError(
                f"'{prefix}.index' not found; give the common prefix of the checkpoint's files, "
                "such as 'model.ckpt-1000000'"
            )
        # Silences TensorFlow's messages about the processor.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        with required(f"reading the TensorFlow checkpoint '{prefix}' requires tensorflow", "lightbert[tf1]"):
            import tensorflow
        self._prefix = prefix
        # The reader raises some errors of the C++ side unchanged.
        self._broken: tuple[type[Exception], ...] = (tensorflow.errors.OpError, LookupError, ValueError, RuntimeError)
        try:
            self._reader = tensorflow.train.load_checkpoint(str(prefix))
        except self._broken as error:
            raise self._incomplete() from error

    def names(self) -> list[str]:
        """Return the names of all variables."""
        return sorted(self._reader.get_variable_to_shape_map())

    def get(self, name: str) -> NDArray[Any]:
        """Return one variable."""
        try:
            array: NDArray[Any] = self._reader.get_tensor(name)
        except self._broken as error:
            raise self._incomplete() from error
        return array

    def _incomplete(self) -> InputError:
        return InputError(f"the checkpoint '{self._prefix}' is truncated or a file is missing; copy it again")


def model_variables(checkpoint: Checkpoint) -> list[str]:
    """Return the names of the model's variables, without optimizer slots and step counters."""
    return [name for name in checkpoint.names() if not _TRAINING_VARIABLES.fullmatch(name)]
