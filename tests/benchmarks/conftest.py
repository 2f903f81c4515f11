"""What the tests of benchmarks get: an environment of one thread, in which one-thread measurements start no process."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
