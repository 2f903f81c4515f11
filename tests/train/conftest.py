"""A prepared corpus and a tiny model to start from, created once per session."""

from pathlib import Path

import pytest
from tiny_runs import write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tiny")
