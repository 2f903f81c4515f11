"""Model folders round-trip bit for bit and are written atomically."""

import json
from pathlib import Path

import pytest
import torch
from small import FAMILIES, VARIANTS, VOCAB, ids
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from lightbert.errors import InputError
from lightbert.models import Config, build, folder
from lightbert.nn.encoder import Encoder
from randomised import randomised

HEADS = {"mlm": {}, "rtd": {}, "nsp": {}, "classify": {"labels": 3, "hidden": "tanh"}, "span": {}, "beam": {"inner": 6}}


def make(config: Config = VARIANTS["convbert-medium-small"]) -> Encoder:
    return randomised(build(config, heads=HEADS))


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "hello": 3}, unk_token="[UNK]"))


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_saved_model_is_loaded_bit_for_bit_with_config_and_heads(tmp_path, config):
    model = make(config)
    folder.save(model, tmp_path / "model")
    again = folder.load(tmp_path / "model")
    assert again.config == config
    assert again.head_settings == model.head_settings
    assert list(again.state_dict()) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    rows = ids(2, 7)
    assert torch.equal(again(rows), model(rows))


def test_weights_that_transformers_split_into_several_files_are_loaded(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = randomised(build(FAMILIES["convbert"]))
    folder.save(model, tmp_path / "one")
    transformers.AutoModel.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "many", max_shard_size="4KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    again = folder.load(tmp_path / "many")
    assert list(again.state_dict()) == list(model.state_dict())
    assert all(torch.equal(again.state_dict()[name], value) for name, value in model.state_dict().items())


def test_heads_give_the_same_logits(tmp_path):
    model = make()
    folder.save(model, tmp_path / "model")
    again, states = folder.load(tmp_path / "model"), model(ids(2, 7))
    assert torch.equal(again.heads["mlm"](states, again.table), model.heads["mlm"](states, model.table))
    assert torch.equal(again.heads["classify"](states), model.heads["classify"](states))


def test_a_pool_is_saved_and_a_head_without_one_reads_cls(tmp_path):
    states, mask = torch.randn(2, 7, FAMILIES["bert"].width), torch.arange(7) < torch.tensor([[7], [3]])
    model = randomised(build(FAMILIES["bert"], heads={"classify": {"labels": 3, "pool": "mean"}})).eval()
    folder.save(model, tmp_path / "mean")
    again = folder.load(tmp_path / "mean").heads["classify"]
    assert torch.equal(again(states, mask=mask), model.heads["classify"](states, mask=mask))
    config = json.loads((tmp_path / "mean" / "config.json").read_text())
    del config["heads"]["classify"]["pool"]
    (tmp_path / "mean" / "config.json").write_text(json.dumps(config))
    older = folder.load(tmp_path / "mean").heads["classify"]
    assert torch.equal(older(states, mask=mask), older(states[:, :1]))


def test_a_loaded_model_is_ready_to_evaluate_and_to_train(tmp_path):
    folder.save(make().train(), tmp_path / "model")
    model = folder.load(tmp_path / "model")
    assert not model.training
    model(ids(2, 7)).sum().backward()
    assert model.table.grad is not None
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_dtype_of_the_weights_is_kept(tmp_path, dtype):
    folder.save(make().to(dtype), tmp_path / "model")
    assert folder.load(tmp_path / "model").table.dtype is dtype


def test_the_tokenizer_is_saved_with_the_model(tmp_path, tokenizer):
    folder.save(make(), tmp_path / "given", tokenizer=tokenizer)
    model = folder.load(tmp_path / "given")
    assert model.tokenizer.encode("hello").ids == [3]
    folder.save(model, tmp_path / "carried")
    assert folder.load(tmp_path / "carried").tokenizer.to_str() == tokenizer.to_str()
    settings = json.loads((tmp_path / "carried" / "tokenizer_config.json").read_text())
    assert settings["pad_token"] == "[PAD]"
    assert settings["model_max_length"] == 24


def test_a_model_without_tokenizer_has_none(tmp_path):
    folder.save(make(), tmp_path / "model")
    assert folder.load(tmp_path / "model").tokenizer is None
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}


def test_labels_task_and_origin_are_kept(tmp_path):
    model = make()
    model.labels, model.origin = ("no", "maybe", "yes"), "electra"
    model.task = {"kind": "classify", "labels": ["no", "maybe", "yes"], "task": "own", "length": 64}
    folder.save(model, tmp_path / "model")
    again = folder.load(tmp_path / "model")
    assert (again.labels, again.origin) == (("no", "maybe", "yes"), "electra")
    assert again.task == model.task


def test_config_json_has_format_type_and_family(tmp_path):
    folder.save(make(), tmp_path / "model")
    content = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (content["format"], content["model_type"], content["family"]) == (1, "lightbert", "convbert")
    assert content["config"]["vocab"] == VOCAB
    assert content["heads"]["classify"] == {"labels": 3, "hidden": "tanh"}


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("step", ["write_tensors", "write_atomic", "write_tokenizer"])
def test_a_write_that_fails_leaves_the_old_folder_and_nothing_else(tmp_path, tokenizer, monkeypatch, step):
    path = tmp_path / "model"
    folder.save(make(), path, tokenizer)
    before = contents(path)

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, step, full_disk)
    with pytest.raises(OSError, match="No space left"):
        folder.save(make(VARIANTS["bert-small"]), path, tokenizer)
    assert contents(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_saving_again_replaces_the_whole_folder(tmp_path, tokenizer):
    path = tmp_path / "deep" / "model"
    folder.save(make(), path, tokenizer)
    folder.save(make(VARIANTS["bert-small"]), path)
    assert folder.load(path).config == VARIANTS["bert-small"]
    assert not (path / "tokenizer.json").exists()


def test_a_folder_of_others_is_replaced_only_with_force(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not a model folder that lightbert wrote"):
        folder.save(make(), project)
    (project / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="exists and is not a model folder that lightbert wrote"):
        folder.save(make(), project)
    monkeypatch.chdir(project)
    with pytest.raises(InputError, match="is the current folder"):
        folder.save(make(), ".")
    assert contents(project).keys() == {"config.json", "thesis.txt"}
    monkeypatch.chdir(tmp_path)
    folder.save(make(), project, force=True)
    assert contents(project).keys() == {"config.json", "model.safetensors"}
