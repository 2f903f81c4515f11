"""Fixtures of the tests of the kernels."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fill what a kernel allocates with NaN or the largest integer, so that elements it doesn't write are detected."""
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)
