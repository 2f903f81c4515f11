"""Under a limit on address space, a command whose libraries would abort prints a sentence before they are loaded."""

import os

import pytest

from lightbert import cli, library_memory, memory
from lightbert.errors import InputError


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes for which there must be room, under a limit."""
    sizes: list[int] = []
    monkeypatch.setattr(memory, "address_space_limit", lambda: 1 << 40)
    monkeypatch.setattr(memory, "check_room", lambda size, purpose: sizes.append(size))
    # It would hold for all later tests of this process.
    monkeypatch.setattr(library_memory, "_use_one_heap", lambda: None)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return sizes


def test_without_a_limit_nothing_is_checked(requested: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "address_space_limit", lambda: None)
    library_memory.check("pretrain")
    assert requested == []
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_command_without_libraries_is_not_checked(requested: list[int]) -> None:
    library_memory.check("recipes")
    assert requested == []


def test_torch_needs_more_than_numpy_and_more_for_each_thread(
    requested: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    library_memory.check("pretrain")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    library_memory.check("pretrain")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    library_memory.check("prepare")
    one, three, numpy = requested
    assert numpy < one < three


def test_only_preparation_lets_its_threads_share_one_heap(
    requested: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(library_memory, "_use_one_heap", lambda: made.append("one heap"))
    library_memory.check("pretrain")
    assert made == []
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    library_memory.check("prepare")
    assert made == ["one heap"]


def test_help_is_printed_under_any_limit(requested: list[int]) -> None:
    assert cli.main(["prepare", "--help"]) == 0
    assert requested == []


def test_too_little_room_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def check_room(size: int, purpose: str) -> None:
        raise InputError(f"{purpose} requires more")

    monkeypatch.setattr(memory, "address_space_limit", lambda: 1 << 40)
    monkeypatch.setattr(memory, "check_room", check_room)
    assert cli.main(["info", "bert-tiny"]) == 1
    assert capsys.readouterr().err == "lightbert: loading PyTorch requires more\n"
