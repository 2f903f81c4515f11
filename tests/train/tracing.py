"""torch.compile without code generation, which is slow; the number of graphs doesn't depend on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import nn

_compile = nn.Module.compile


@contextmanager
def traced_only() -> Iterator[mock.Mock]:
    """Let modules that are compiled be traced, and run their graphs eagerly; yields a mock that records the calls."""
    calls = mock.Mock()

    def trace(part: nn.Module, **how: object) -> None:
        calls(part, **how)
        _compile(part, backend="eager", **how)

    torch.compiler.reset()
    with mock.patch.object(nn.Module, "compile", trace):
        yield calls
    torch.compiler.reset()
