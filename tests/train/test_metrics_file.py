"""The bytes of metrics.jsonl don't depend on how often a run was interrupted."""

import json
from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.train.log import MetricsFile, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of four steps with an evaluation after the second."""
    path = tmp_path / "metrics.jsonl"
    log = MetricsFile(path, 0)
    for step in range(1, 5):
        log.write("train", step, {"loss": 1 / step})
        if step == 2:
            log.write("held-out", step, {"loss": 0.7})
    log.close()
    return path


def steps(path: Path) -> list[tuple[str, int]]:
    return [(record["kind"], record["step"]) for record in map(json.loads, path.read_text().splitlines())]


def test_resuming_drops_the_lines_after_the_checkpoint(path: Path) -> None:
    MetricsFile(path, 2).close()
    assert steps(path) == [("train", 1), ("train", 2), ("held-out", 2)]


def test_resuming_at_the_last_step_keeps_every_byte(path: Path) -> None:
    before = path.read_bytes()
    MetricsFile(path, 4).close()
    assert path.read_bytes() == before


def test_starting_over_drops_everything(path: Path) -> None:
    MetricsFile(path, 0).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_line_truncated_by_a_crash_is_dropped(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    log = MetricsFile(path, 4)
    log.write("train", 4, {"loss": 0.25})
    log.close()
    assert steps(path) == [("train", 1), ("train", 2), ("held-out", 2), ("train", 3), ("train", 4)]


def test_evaluations_of_kept_steps_are_loaded_and_later_ones_are_not(path: Path) -> None:
    for step, known in ((4, {2: {"loss": 0.7}}), (1, {})):
        log = MetricsFile(path, step)
        assert log.held_out == known
        log.close()


def test_a_written_evaluation_can_be_looked_up(path: Path) -> None:
    log = MetricsFile(path, 4)
    log.write("held-out", 4, {"loss": 0.5})
    log.close()
    assert log.held_out[4] == {"loss": 0.5}


def test_non_finite_numbers_become_null(path: Path) -> None:
    log = MetricsFile(path, 4)
    log.write("skipped", 5, {"loss": float("nan"), "norm": float("inf"), "lr": 0.1, "examples": [1, 2]})
    log.close()
    assert read(path, "skipped") == [
        {"kind": "skipped", "step": 5, "loss": None, "norm": None, "lr": 0.1, "examples": [1, 2]}
    ]


def test_read_returns_the_lines_of_a_kind(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert [record["step"] for record in read(path, "train")] == [1, 2, 3, 4]
    assert [record["step"] for record in read(path, "held-out")] == [2]
    assert read(path.with_name("nothing.jsonl"), "train") == []


def test_flushed_lines_are_on_disk(path: Path) -> None:
    log = MetricsFile(path, 4)
    log.write("train", 5, {})
    log.flush()
    assert steps(path)[-1] == ("train", 5)
    log.close()


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe\n", b"{\n", b"[1]\n", b'{"kind": "train"}\n', b'{"kind": 1, "step": "x"}\n']
)
def test_a_damaged_line_between_whole_ones_is_an_error(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    line = b'{"kind": "train", "step": %d, "loss": 1.0}\n'
    path.write_bytes(line % 1 + damage + line % 2)
    with pytest.raises(InputError, match=r"line 2 of '.*metrics\.jsonl' is damaged; restore the file, or remove it"):
        MetricsFile(path, 2)
    path.write_bytes(line % 1 + damage)
    MetricsFile(path, 2).close()
    assert path.read_bytes() == line % 1
