"""The number of threads that the libraries of PyTorch read from the environment.

`torch.set_num_threads` is not enough: on aarch64, oneDNN computes linear layers with the Arm Compute Library, which
uses the number of threads that the environment had when torch was imported.
"""

import os
import sys

VARIABLE = "OMP_NUM_THREADS"


def has_threads(threads: int) -> bool:
    """Whether the environment has this number of threads; 0: any number."""
    return threads == 0 or os.environ.get(VARIABLE) == str(threads)


def set_threads(threads: int) -> None:
    """Set the number of threads, unless it is 0 or torch is already imported."""
    if threads and "torch" not in sys.modules:
        os.environ[VARIABLE] = str(threads)
