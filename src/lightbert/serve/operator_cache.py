"""The size of the cache in which oneDNN, which torch computes with on a CPU, keeps its operators."""

import os
import sys

# The operators of several batches; one shape of a batch needs about ten.
_CAPACITY = "64"
# oneDNN reads both names.
_NAMES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")


def limit_operator_cache() -> None:
    """Let oneDNN keep few operators, unless the environment sets their number or torch is already imported.

    oneDNN creates an operator for each shape and keeps 1,024 of them. The batches of a server have ever new shapes, so
    that its memory would grow for many minutes; they take as long with few operators.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _NAMES):
        os.environ[_NAMES[0]] = _CAPACITY
