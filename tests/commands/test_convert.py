import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lightbert
from lightbert.cli import main
from lightbert.commands.convert import Config, run
from lightbert.errors import InputError
from lightbert.models import PRESETS, build

SMALL = {"vocab": 60, "depth": 1}


@pytest.fixture
def model():
    return build(replace(PRESETS["convbert-tiny"], **SMALL), heads={"mlm": {}, "rtd": {}})


@pytest.fixture
def source(model, tmp_path):
    lightbert.save(model, tmp_path / "source")
    return str(tmp_path / "source")


def test_a_round_trip_preserves_every_bit(model, source, tmp_path):
    there = run(Config(source, tmp_path / "hf", "hf", heads=("mlm",)))
    back = run(Config(str(tmp_path / "hf"), tmp_path / "back", "lightbert"))
    assert there.content["heads"] == back.content["heads"] == ["mlm"]
    assert there.content["parameters"] == back.content["parameters"]
    again = lightbert.load(tmp_path / "back").state_dict()
    assert all(torch.equal(again[name], model.state_dict()[name]) for name in again)


def test_the_report_notes_that_transformers_reads_padding(source, tmp_path):
    assert "depend on its padding" in run(Config(source, tmp_path / "hf", "hf", heads=("mlm",))).content["notes"][0]
    assert run(Config(str(tmp_path / "hf"), tmp_path / "again", "hf")).content["notes"] == []


def test_all_heads_can_be_dropped(source, tmp_path, capsys):
    assert main(["convert", source, str(tmp_path / "hf"), "--to", "hf", "--heads", "none", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["heads"] == []
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["ConvBertModel"]


def test_the_report_is_a_sentence(source, tmp_path, capsys):
    assert main(["convert", source, str(tmp_path / "ours"), "--to", "lightbert", "--heads", "rtd"]) == 0
    assert "convbert with rtd" in capsys.readouterr().out


def test_a_failed_conversion_writes_nothing(source, tmp_path, capsys):
    assert main(["convert", source, str(tmp_path / "hf"), "--to", "hf"]) == 1
    assert "no ConvBert class with the heads 'mlm', 'rtd'; drop some or all heads" in capsys.readouterr().err
    assert sorted(Path(tmp_path).iterdir()) == [Path(source)]


@pytest.mark.parametrize("inside", ["", "theirs"])
def test_a_source_in_the_target_is_not_replaced_even_with_force(source, tmp_path, inside):
    target = tmp_path / "project"
    place = target / inside
    shutil.copytree(source, place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(InputError, match=r"is in the target '.*', which would replace it; choose another target"):
        run(Config(str(place), target, "lightbert", force=True))
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_a_non_empty_folder_is_replaced_only_with_force(source, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty; choose another folder, or add --force to replace it"):
        run(Config(source, target, "lightbert"))
    assert (target / "note.txt").exists()
    run(Config(source, target, "lightbert", force=True))
    assert not (target / "note.txt").exists()
    lightbert.load(target)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": ("mln",)}, "unknown head 'mln'; did you mean 'mlm'"),
        ({"source": "nowhere"}, "model 'nowhere' not found"),
        ({"part": "generator"}, "--part and --config require a TensorFlow 1 checkpoint"),
    ],
)
def test_errors_for_unknown_names_suggest_valid_ones(changes, sentence, source, tmp_path):
    with pytest.raises(InputError, match=sentence):
        run(Config(**({"source": source, "target": tmp_path / "x", "to": "lightbert"} | changes)))
