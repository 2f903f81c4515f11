"""Loading an invalid folder raises a one-line error that names the problem."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small import VARIANTS
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from lightbert.errors import InputError
from lightbert.models import build, folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder.save(build(VARIANTS["convbert-small"], heads={"rtd": {}}), tmp_path / "model")
    return tmp_path / "model"


def load_error(path: Path) -> str:
    """Return the one-line error of loading a folder."""
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


def test_the_error_for_a_missing_folder_names_it(tmp_path):
    assert "not found; give a folder with config.json" in load_error(tmp_path / "nowhere")
    assert "nowhere" in load_error(tmp_path / "nowhere")


def test_a_folder_without_config_is_an_error(path):
    (path / "config.json").unlink()
    assert f"'{path}' is not a model folder: config.json not found" in load_error(path)


def test_the_error_for_a_run_folder_names_its_model(path, tmp_path):
    path.rename(tmp_path / "final")
    assert f"its model is '{tmp_path / 'final'}'" in load_error(tmp_path)


def test_the_error_for_an_unfinished_run_or_several_runs_names_their_models(path, tmp_path):
    run = tmp_path / "unfinished"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    assert f"'{run}' is the folder of an unfinished run" in load_error(run)
    grid = tmp_path / "grid"
    (grid / "runs" / "seed-1").mkdir(parents=True)
    path.rename(grid / "runs" / "seed-1" / "final")
    assert f"the model of the first run is '{grid / 'runs' / 'seed-1' / 'final'}'" in load_error(grid)


def test_a_file_instead_of_a_folder_is_an_error(path):
    assert "model.safetensors' is a file; give the folder" in load_error(path / "model.safetensors")


def test_a_config_that_is_not_json_is_an_error(path):
    (path / "config.json").write_text("{'vocab': 3")
    assert "config.json' is not valid JSON" in load_error(path)


def test_a_config_that_is_not_text_is_an_error(path):
    (path / "config.json").write_bytes(b"\xff\xfe\x00")
    assert "config.json' is not valid JSON" in load_error(path)


@pytest.mark.parametrize("content", ["[1, 2]", "3", "null"])
def test_a_config_that_is_not_a_json_object_is_an_error(path, content):
    (path / "config.json").write_text(content)
    assert "config.json' is not a JSON object" in load_error(path)


def test_the_error_for_a_newer_format_suggests_an_update(path):
    edit_config(path, lambda content: content.update(format=2))
    assert "must be 1, got 2; update lightbert" in load_error(path)


def test_the_error_for_an_unknown_family_suggests_the_nearest(path):
    edit_config(path, lambda content: content.update(family="convbart"))
    assert "unknown model family 'convbart'; did you mean 'convbert'?" in load_error(path)


def test_the_error_for_an_unknown_key_suggests_the_nearest(path):
    edit_config(path, lambda content: content["config"].update(n_head=4))
    assert "unknown key 'n_head'; did you mean 'n_heads'?" in load_error(path)
    assert str(path) in load_error(path)


def test_the_error_for_a_wrong_type_names_the_key(path):
    edit_config(path, lambda content: content["config"].update(depth="two"))
    assert "depth must be an integer, got 'two'" in load_error(path)


@pytest.mark.parametrize("config", [3, ["vocab"], None])
def test_the_error_for_a_config_without_settings_names_the_folder(path, config):
    edit_config(path, lambda content: content.update(config=config))
    assert str(path) in load_error(path)


@pytest.mark.parametrize("heads", [3, ["rtd"], {"rtd": 3}])
def test_heads_without_settings_are_an_error(path, heads):
    edit_config(path, lambda content: content.update(heads=heads))
    assert "heads" in load_error(path)


def test_the_error_for_an_unknown_head_suggests_the_nearest(path):
    edit_config(path, lambda content: content.update(heads={"rtb": {}}))
    assert "unknown head 'rtb'; did you mean 'rtd'?" in load_error(path)


def test_the_error_for_missing_weights_names_the_file(path):
    (path / "model.safetensors").unlink()
    assert "not found" in load_error(path)
    assert "model.safetensors" in load_error(path)


@pytest.mark.parametrize("kept", [0, 5, 200, -1])
def test_the_error_for_a_truncated_file_names_it(path, kept):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert "model.safetensors' is truncated or not a safetensors file" in load_error(path)


def test_the_error_for_a_wrong_shape_names_the_tensor_and_both_shapes(path):
    edit_weights(path, lambda tensors: tensors.update({"embeddings.word.weight": torch.zeros(49, 8)}))
    assert "'embeddings.word.weight'" in load_error(path)
    assert "must have the shape [50, 8], got [49, 8]" in load_error(path)


def test_the_error_for_a_missing_tensor_names_it(path):
    edit_weights(path, lambda tensors: tensors.pop("blocks.1.norm.bias"))
    assert "'blocks.1.norm.bias' is missing (1 tensor differs)" in load_error(path)


def test_the_error_for_an_unexpected_tensor_names_it(path):
    edit_weights(path, lambda tensors: tensors.update({"blocks.7.norm.bias": torch.zeros(3)}))
    assert "'blocks.7.norm.bias' is unexpected (1 tensor differs)" in load_error(path)


def test_the_error_for_the_weights_of_another_model_counts_the_tensors_that_differ(path):
    edit_weights(path, lambda tensors: tensors.clear() or tensors.update(x=torch.zeros(3)))
    count = len(build(VARIANTS["convbert-small"], heads={"rtd": {}}).state_dict()) + 1
    assert f"({count} tensors differ); use those that were saved with it" in load_error(path)


def test_the_error_for_an_index_that_is_not_a_json_object_names_it(path):
    (path / "model.safetensors").rename(path / "model-1.safetensors")
    for content, problem in (("[]", "is not a JSON object"), ("{", "is not valid JSON")):
        (path / "model.safetensors.index.json").write_text(content)
        assert f"model.safetensors.index.json' {problem}" in load_error(path)


def test_the_error_for_a_missing_shard_names_it(path):
    (path / "model.safetensors").unlink()
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"x": "model-1.safetensors"}}')
    assert f"'{path / 'model-1.safetensors'}' not found" in load_error(path)


def test_the_error_for_an_invalid_tokenizer_names_it(path):
    (path / "tokenizer.json").write_text("{}")
    assert "tokenizer.json" in load_error(path)


def test_saving_over_a_file_is_an_error_with_its_name(tmp_path):
    (tmp_path / "model").write_text("precious")
    with pytest.raises(InputError, match="model' must be a folder, but is a file"):
        folder.save(build(VARIANTS["bert-small"]), tmp_path / "model")
    assert (tmp_path / "model").read_text() == "precious"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_an_error(path: Path, value: float) -> None:
    edit_weights(path, lambda tensors: tensors["blocks.0.mixer.query.weight"].view(-1)[3:4].fill_(value))
    assert "must be finite, but 'blocks.0.mixer.query.weight' contains NaN or infinity" in load_error(path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bool])
def test_weights_of_several_dtypes_are_an_error(path: Path, dtype: torch.dtype) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["blocks.0.mixer.query.weight"] = tensors["blocks.0.mixer.query.weight"].to(dtype)

    edit_weights(path, change)
    assert "must have one floating-point dtype, got " in load_error(path)


def test_integer_weights_are_an_error(path: Path) -> None:
    edit_weights(path, lambda tensors: tensors.update({name: t.long() for name, t in tensors.items()}))
    assert "must have one floating-point dtype, got int64" in load_error(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("labels", 3),
        ("labels", [1]),
        ("task", [1]),
        ("task", "x"),
        ("origin", 4),
        ("heads", {"classify": {"labels": "x"}}),
    ],
)
def test_entries_of_the_wrong_type_are_an_error(path: Path, key: str, value: Any) -> None:
    edit_config(path, lambda config: config.update({key: value}))
    assert load_error(path)


@pytest.mark.parametrize("depth", [10**9, 10**30])
def test_an_absurd_depth_is_an_error_at_once(path: Path, depth: int) -> None:
    edit_config(path, lambda config: config["config"].update(depth=depth))
    assert f"depth must be <= 1000, got {depth}" in load_error(path)


def test_a_deeply_nested_config_is_an_error(path: Path) -> None:
    (path / "config.json").write_text('{"a":' * 100_000)
    assert "is not valid JSON" in load_error(path)


def test_a_tokenizer_with_more_ids_than_the_model_is_an_error(path: Path) -> None:
    vocab = VARIANTS["convbert-small"].vocab
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(vocab + 1)}, unk_token="w0"))
    tokenizer.save(str(path / "tokenizer.json"))
    assert f"has the id {vocab}, but the model has {vocab} entries" in load_error(path)
