"""What every test gets: the same random numbers, one thread, and hypothesis without a clock."""

import pytest
import torch
from hypothesis import settings

# Before anybody imports it: its assertions are shown like those of a test.
pytest.register_assert_rewrite("tiny_runs")
settings.register_profile("lightbert", deadline=None, derandomize=True)
settings.load_profile("lightbert")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
