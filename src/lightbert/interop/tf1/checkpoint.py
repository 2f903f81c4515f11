"""A TensorFlow checkpoint as named arrays, without what only training needs."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from lightbert.errors import InputError

# The slots of Adam and LAMB, TensorFlow's own and those of the released code, stand under the variable they belong to.
_TRAINING = re.compile(r".+/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1)|(.+/)?(global_step|beta1_power|beta2_power)")


class Checkpoint(Protocol):
    """All that is asked of a checkpoint; a dictionary of arrays can give it as well as tensorflow."""

    def names(self) -> Iterable[str]:
        """Every variable's name, optimizer slots included."""

    def get(self, name: str) -> NDArray[Any]:
        """One variable."""


class TensorFlowCheckpoint:
    """A checkpoint on disk. `prefix` is what its files (`.index`, `.data-00000-of-00001`) have in common."""

    def __init__(self, prefix: Path) -> None:
        if not Path(f"{prefix}.index").is_file():
            raise InputError(
                f"there is no '{prefix}.index'; give what the names of the checkpoint's files have in common, "
                "such as 'model.ckpt-1000000'"
            )
        # Else it greets with a page about the processor.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        try:
            import tensorflow
        except ImportError:
            raise InputError(
                f"'{prefix}' is a TensorFlow checkpoint, and tensorflow is not installed: "
                "pip install 'lightbert[tf1]' to read it"
            ) from None
        self._prefix = prefix
        # Its reader passes some errors of the C++ side on as they are.
        self._broken: tuple[type[Exception], ...] = (tensorflow.errors.OpError, LookupError, ValueError, RuntimeError)
        try:
            self._reader = tensorflow.train.load_checkpoint(str(prefix))
        except self._broken as error:
            raise self._incomplete() from error

    def names(self) -> list[str]:
        """Every variable's name."""
        return sorted(self._reader.get_variable_to_shape_map())

    def get(self, name: str) -> NDArray[Any]:
        """One variable."""
        try:
            array: NDArray[Any] = self._reader.get_tensor(name)
        except self._broken as error:
            raise self._incomplete() from error
        return array

    def _incomplete(self) -> InputError:
        return InputError(f"the checkpoint '{self._prefix}' is truncated or lacks a file; copy it again")


def model_variables(checkpoint: Checkpoint) -> list[str]:
    """The names of what belongs to the model: no optimizer slots, no step counter."""
    return [name for name in checkpoint.names() if not _TRAINING.fullmatch(name)]
