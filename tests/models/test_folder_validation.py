"""A folder that cannot be read is refused in one sentence that names what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small import VARIANTS

from lightbert.errors import InputError
from lightbert.models import build, folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder.save(build(VARIANTS["convbert-small"], heads={"rtd": {}}), tmp_path / "model")
    return tmp_path / "model"


def refusal(path: Path) -> str:
    """The one sentence that loading answers with."""
    with pytest.raises(InputError) as caught:
        folder.load(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def edit_config(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = path / "config.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def edit_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


def test_a_missing_folder_is_named(tmp_path):
    assert "there is no model folder" in refusal(tmp_path / "nowhere")
    assert "nowhere" in refusal(tmp_path / "nowhere")


def test_a_folder_without_config_is_named(path):
    (path / "config.json").unlink()
    assert f"'{path}' has no config.json" in refusal(path)


def test_a_run_is_told_from_the_model_it_trained(path, tmp_path):
    path.rename(tmp_path / "final")
    assert f"the model it trained is '{tmp_path / 'final'}'" in refusal(tmp_path)


def test_an_unfinished_run_and_several_runs_say_where_their_models_are(path, tmp_path):
    run = tmp_path / "unfinished"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    assert f"'{run}' is the folder of a run that is not finished" in refusal(run)
    grid = tmp_path / "grid"
    (grid / "runs" / "seed-1").mkdir(parents=True)
    path.rename(grid / "runs" / "seed-1" / "final")
    assert f"the model of the first is '{grid / 'runs' / 'seed-1' / 'final'}'" in refusal(grid)


def test_a_file_is_told_from_its_folder(path):
    assert "model.safetensors' is a file; give the folder" in refusal(path / "model.safetensors")


def test_a_config_that_is_not_json_is_named(path):
    (path / "config.json").write_text("{'vocab': 3")
    assert "config.json' is not valid JSON" in refusal(path)


def test_a_config_that_is_not_text_is_named(path):
    (path / "config.json").write_bytes(b"\xff\xfe\x00")
    assert "config.json' is not valid JSON" in refusal(path)


@pytest.mark.parametrize("content", ["[1, 2]", "3", "null"])
def test_a_config_that_is_no_table_is_named(path, content):
    (path / "config.json").write_text(content)
    assert "config.json' is not a JSON object" in refusal(path)


def test_a_newer_format_asks_for_an_update(path):
    edit_config(path, lambda content: content.update(format=2))
    assert "has format 2, this version reads 1: update lightbert" in refusal(path)


def test_an_unknown_family_is_answered_with_the_nearest(path):
    edit_config(path, lambda content: content.update(family="convbart"))
    assert "unknown model family 'convbart'; did you mean 'convbert'?" in refusal(path)


def test_an_unknown_key_is_answered_with_the_nearest(path):
    edit_config(path, lambda content: content["config"].update(n_head=4))
    assert "unknown key 'n_head'; did you mean 'n_heads'?" in refusal(path)
    assert str(path) in refusal(path)


def test_a_value_of_the_wrong_type_is_named(path):
    edit_config(path, lambda content: content["config"].update(depth="two"))
    assert "depth must be an integer, got 'two'" in refusal(path)


@pytest.mark.parametrize("config", [3, ["vocab"], None])
def test_a_config_that_holds_no_settings_is_named(path, config):
    edit_config(path, lambda content: content.update(config=config))
    assert str(path) in refusal(path)


@pytest.mark.parametrize("heads", [3, ["rtd"], {"rtd": 3}])
def test_heads_that_hold_no_settings_are_named(path, heads):
    edit_config(path, lambda content: content.update(heads=heads))
    assert "heads" in refusal(path)


def test_an_unknown_head_is_answered_with_the_nearest(path):
    edit_config(path, lambda content: content.update(heads={"rtb": {}}))
    assert "unknown head 'rtb'; did you mean 'rtd'?" in refusal(path)


def test_missing_weights_are_named(path):
    (path / "model.safetensors").unlink()
    assert "there is no file" in refusal(path)
    assert "model.safetensors" in refusal(path)


@pytest.mark.parametrize("kept", [0, 5, 200, -1])
def test_a_truncated_file_is_named(path, kept):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert "model.safetensors' is truncated or not a safetensors file" in refusal(path)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(path):
    edit_weights(path, lambda tensors: tensors.update({"embeddings.word.weight": torch.zeros(49, 8)}))
    assert "'embeddings.word.weight'" in refusal(path)
    assert "is [49, 8] but config.json wants [50, 8]" in refusal(path)


def test_a_missing_tensor_is_named(path):
    edit_weights(path, lambda tensors: tensors.pop("blocks.1.norm.bias"))
    assert "lacks 'blocks.1.norm.bias' (1 names differ)" in refusal(path)


def test_an_unknown_tensor_is_named(path):
    edit_weights(path, lambda tensors: tensors.update({"blocks.7.norm.bias": torch.zeros(3)}))
    assert "has an unknown 'blocks.7.norm.bias' (1 names differ)" in refusal(path)


def test_a_tokenizer_that_cannot_be_read_is_named(path):
    (path / "tokenizer.json").write_text("{}")
    assert "tokenizer.json" in refusal(path)


def test_saving_over_a_file_is_refused_with_its_name(tmp_path):
    (tmp_path / "model").write_text("precious")
    with pytest.raises(InputError, match="model' is a file where a folder should go"):
        folder.save(build(VARIANTS["bert-small"]), tmp_path / "model")
    assert (tmp_path / "model").read_text() == "precious"
