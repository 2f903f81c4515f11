"""Pickled weights: `lightbert convert` reads their tensors and executes no code."""

import json
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from originals import original

import lightbert
from lightbert.cli import main
from lightbert.commands.convert import Config, run
from lightbert.errors import InputError
from lightbert.interop import weights
from lightbert.interop.weights import read_pickle

FORMATS = {"zip": True, "legacy": False}


class Attack:
    """Creates a file when an unrestricted loader unpickles it."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self):
        return os.mkdir, (str(self.trap),)


def published(folder: Path) -> dict[str, torch.Tensor]:
    """A folder of transformers, always with the same weights, with safetensors."""
    torch.manual_seed(5)
    model = original("convbert")
    model.save_pretrained(folder)
    return model.state_dict()


def with_pickle(folder: Path, name: str = "pytorch_model.bin", **options: bool) -> dict[str, torch.Tensor]:
    """The same folder with a pickle, as many were published."""
    tensors = published(folder)
    (folder / "model.safetensors").unlink()
    torch.save(OrderedDict(tensors), folder / name, **options)
    return tensors


def converted(source: Path | str, target: Path):
    run(Config(str(source), target, "lightbert"))
    return lightbert.load(target)


def assert_same_model(one, other) -> None:
    assert one.config == other.config
    assert one.state_dict().keys() == other.state_dict().keys()
    assert all(tensor.equal(other.state_dict()[name]) for name, tensor in one.state_dict().items())


@pytest.fixture
def expected(tmp_path: Path):
    published(tmp_path / "safe")
    return lightbert.load(tmp_path / "safe")


def test_convert_reads_pickled_weights(tmp_path_factory, expected):
    for zipped in FORMATS.values():
        for name in ("pytorch_model.bin", "model.pt"):
            tmp_path = tmp_path_factory.mktemp("case")
            with_pickle(tmp_path / "source", name, _use_new_zipfile_serialization=zipped)
            torch.save({"lr": 1}, tmp_path / "source" / "training_args.bin")
            assert_same_model(converted(tmp_path / "source", tmp_path / "ours"), expected)


def test_convert_reads_pickles_in_several_files(tmp_path, expected):
    source = tmp_path / "source"
    tensors = with_pickle(source)
    (source / "pytorch_model.bin").unlink()
    index = {}
    for number, names in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        file = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save({name: tensors[name] for name in names}, source / file)
        index |= dict.fromkeys(names, file)
    (source / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    assert_same_model(converted(source, tmp_path / "ours"), expected)


def test_convert_downloads_pickles_only_when_there_is_nothing_else(tmp_path, expected, monkeypatch):
    huggingface_hub, asked = pytest.importorskip("huggingface_hub"), []

    def snapshot_download(repo_id: str, *, allow_patterns: list[str], **_: object) -> str:
        asked.append([pattern for pattern in allow_patterns if pattern.endswith(".bin")])
        folder = tmp_path / "cache"
        if not folder.exists():
            with_pickle(folder)
            (folder / "pytorch_model.bin").rename(tmp_path / "held back")
        if asked[-1]:
            (tmp_path / "held back").rename(folder / "pytorch_model.bin")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(InputError, match="run `lightbert convert theirs/model NEW_FOLDER --to lightbert`"):
        lightbert.load("theirs/model")
    assert asked == [[]]
    assert_same_model(converted("theirs/model", tmp_path / "ours"), expected)
    assert asked[1] == []
    assert asked[2]


def test_safetensors_are_preferred(tmp_path, expected):
    published(tmp_path / "source")
    (tmp_path / "source" / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert_same_model(converted(tmp_path / "source", tmp_path / "ours"), expected)


@pytest.mark.parametrize("user", ["load", "info", "predict"])
def test_other_commands_point_to_convert(tmp_path, user, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_pickle(Path("my model"))
    message = "convert it with `lightbert convert 'my model' NEW_FOLDER --to lightbert`"
    if user == "load":
        with pytest.raises(InputError, match=message):
            lightbert.load("my model")
    else:
        assert main([user, "my model", *(["a text"] if user == "predict" else [])]) == 1
        assert message in capsys.readouterr().err


def test_malicious_pickles_do_not_run(tmp_path_factory, capsys):
    for zipped in FORMATS.values():
        tmp_path = tmp_path_factory.mktemp("case")
        source, trap = tmp_path / "source", tmp_path / "trap"
        with_pickle(source)
        torch.save(
            {"a": torch.ones(1), "b": Attack(trap)}, source / "pytorch_model.bin", _use_new_zipfile_serialization=zipped
        )
        assert main(["convert", str(source), str(tmp_path / "ours"), "--to", "lightbert"]) == 1
        assert "pytorch_model.bin' is damaged or contains more than tensors" in capsys.readouterr().err
        assert not trap.exists()
        assert not (tmp_path / "ours").exists()
        # The exploit works with an unrestricted loader.
        torch.load(source / "pytorch_model.bin", weights_only=False)
        assert trap.exists()


def test_a_bare_pickle_does_not_run(tmp_path):
    trap = tmp_path / "trap"
    (tmp_path / "weights.bin").write_bytes(pickle.dumps(Attack(trap)))
    with pytest.raises(InputError, match="is damaged or contains more than tensors"):
        read_pickle(tmp_path / "weights.bin")
    assert not trap.exists()


def test_anything_but_a_flat_dictionary_of_tensors_is_an_error(tmp_path):
    for zipped in FORMATS.values():
        for content, message in (
            ([torch.ones(1)], "must contain a dictionary of tensors, got list"),
            (torch.ones(1), "must contain a dictionary of tensors, got Tensor"),
            ({"model": {"a": torch.ones(1)}}, "only tensors by name, got dict as 'model'"),
            ({"a": torch.ones(1), "step": 3}, "only tensors by name, got int as 'step'"),
            ({3: torch.ones(1)}, "only tensors by name, got Tensor as 3"),
            ({"a": torch.ones(2, 2).to_sparse()}, "'a' in '.*' must be a dense tensor, got torch.sparse_coo"),
        ):
            torch.save(content, tmp_path / "weights.bin", _use_new_zipfile_serialization=zipped)
            with pytest.raises(InputError, match=message):
                read_pickle(tmp_path / "weights.bin")


def test_tensors_that_are_larger_than_their_file_are_an_error(tmp_path):
    for zipped in FORMATS.values():
        huge = torch.ones(1).expand(10**12)
        torch.save({"a": huge}, tmp_path / "weights.bin", _use_new_zipfile_serialization=zipped)
        with pytest.raises(InputError, match="got 4,000,000,000,000 bytes"):
            read_pickle(tmp_path / "weights.bin")


def test_tied_weights_may_be_larger_than_their_file(tmp_path):
    table = torch.randn(1000, 8)
    torch.save({"table": table, "decoder": table}, tmp_path / "weights.bin")
    assert read_pickle(tmp_path / "weights.bin").keys() == {"table", "decoder"}


def test_an_archive_that_unpacks_to_more_than_its_size_is_an_error(tmp_path):
    torch.save({"a": torch.zeros(10**6)}, tmp_path / "plain.bin")
    with (
        zipfile.ZipFile(tmp_path / "plain.bin") as plain,
        zipfile.ZipFile(tmp_path / "bomb.bin", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry))
    with pytest.raises(InputError, match="must not unpack to more than its size"):
        read_pickle(tmp_path / "bomb.bin")


def test_files_and_dictionaries_that_are_too_large_are_an_error(tmp_path, monkeypatch):
    torch.save(
        {name: torch.ones(1) for name in "abcdefgh"}, tmp_path / "weights.bin", _use_new_zipfile_serialization=False
    )
    monkeypatch.setattr(weights, "MAX_TENSORS", 7)
    with pytest.raises(InputError, match="must contain at most 7 tensors, got 8"):
        read_pickle(tmp_path / "weights.bin")
    monkeypatch.setattr(weights, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="must have at most 100 bytes"):
        read_pickle(tmp_path / "weights.bin")


def test_a_truncated_file_is_a_one_line_error(tmp_path):
    for zipped in FORMATS.values():
        torch.save({"a": torch.ones(1000)}, tmp_path / "weights.bin", _use_new_zipfile_serialization=zipped)
        whole = (tmp_path / "weights.bin").read_bytes()
        for length in (0, 10, len(whole) // 2, len(whole) - 10):
            (tmp_path / "weights.bin").write_bytes(whole[:length])
            with pytest.raises(InputError, match="is damaged") as caught:
                read_pickle(tmp_path / "weights.bin")
            assert "\n" not in str(caught.value)


def test_an_index_that_points_outside_its_folder_is_an_error(tmp_path):
    with_pickle(tmp_path / "source")
    (tmp_path / "source" / "pytorch_model.bin").rename(tmp_path / "outside.bin")
    index = {"weight_map": {"a": "../outside.bin"}}
    (tmp_path / "source" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"must name files in its folder, got '\.\./outside\.bin'"):
        converted(tmp_path / "source", tmp_path / "ours")


def test_several_pickles_without_an_index_are_an_error(tmp_path):
    with_pickle(tmp_path / "source", "one.bin")
    torch.save({}, tmp_path / "source" / "two.pt")
    with pytest.raises(InputError, match=r"must contain one file of weights, got one\.bin, two\.pt"):
        converted(tmp_path / "source", tmp_path / "ours")
