"""Truncated files and flipped bits always cause an error or a fallback to the previous checkpoint."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, train

from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.train.checkpoint import Checkpoint, load_newest


def damaged(path: Path, truncations: int, flips: int) -> Iterator[str]:
    """Damage a file at one position after another, and restore it in between."""
    whole, choose = path.read_bytes(), random.Random(path.name)
    for length in sorted(choose.sample(range(len(whole)), min(len(whole), truncations))):
        path.write_bytes(whole[:length])
        yield f"{path.name} cut to {length} bytes"
    for bit in sorted(choose.sample(range(8 * len(whole)), min(8 * len(whole), flips))):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        yield f"bit {bit} of {path.name} flipped"
    path.write_bytes(whole)


def equal(one: Checkpoint, other: Checkpoint) -> bool:
    return one.facts == other.facts and all(
        one.groups[group].keys() == tensors.keys()
        and all(torch.equal(one.groups[group][name], tensor) for name, tensor in tensors.items())
        for group, tensors in other.groups.items()
    )


def damage_checkpoints(folder: Path, truncations: int, flips: int) -> int:
    """Damage every file of the newest of two checkpoints; return the number of positions."""
    places = 0
    last = load_newest(folder)
    shutil.move(folder / "step-6", folder.parent / "step-6")
    before = load_newest(folder)
    shutil.move(folder.parent / "step-6", folder / "step-6")
    assert not equal(before, last)
    for path in sorted((folder / "step-6").iterdir()):
        for damage in damaged(path, truncations, flips):
            assert equal(load_newest(folder), before), damage
            places += 1
    assert equal(load_newest(folder), last)
    return places


def damage_shards(folder: Path, truncations: int, flips: int) -> int:
    """Damage every file of a prepared folder; return the number of positions."""
    places = 0
    for path in sorted(folder.iterdir()):
        for _ in damaged(path, truncations, flips):
            with pytest.raises(InputError):
                Shards.open(folder)
            places += 1
    Shards.open(folder)
    return places


@pytest.fixture(scope="module")
def checkpoints(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train(recipe_of(corpus, out, steps=6))
    return out / "checkpoints"


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda folder: shutil.copytree(folder, tmp_path / "copy")


def test_a_damaged_checkpoint_is_never_loaded(checkpoints: Path, copy: Callable[[Path], Path]) -> None:
    assert damage_checkpoints(copy(checkpoints), truncations=5, flips=20) == 100


def test_a_single_damaged_checkpoint_raises_an_error(checkpoints: Path, copy: Callable[[Path], Path]) -> None:
    folder = copy(checkpoints)
    shutil.rmtree(folder / "step-3")
    for path in sorted((folder / "step-6").iterdir()):
        for _ in damaged(path, truncations=1, flips=2):
            with pytest.raises(InputError, match="are damaged"):
                load_newest(folder)


def test_a_damaged_prepared_folder_is_never_opened(corpus: Path, copy: Callable[[Path], Path]) -> None:
    assert damage_shards(copy(corpus / "data"), truncations=5, flips=20) == 25 * len([*(corpus / "data").iterdir()])


@pytest.mark.prove
@pytest.mark.timeout(3000)
def test_damage_at_thousands_of_positions_is_always_detected(
    corpus: Path, checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damage_checkpoints(shutil.copytree(checkpoints, tmp_path / "run" / "checkpoints"), 64, 1000)
    data = damage_shards(shutil.copytree(corpus / "data", tmp_path / "data"), 64, 1000)
    with capsys.disabled():
        print(f"\ncheckpoint: {run} places damaged, {run} times the one before; shards: {data} places, {data} errors")
