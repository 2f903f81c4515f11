"""A model from Hugging Face that is fine-tuned with default settings can be written back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from questions import document, question_entry, write
from tiny_tasks import SETTINGS, write_reviews
from vocabularies import small_tokenizer

from extras import needs_metrics
from lightbert import cli
from lightbert.interop import huggingface
from lightbert.models import PRESETS, build, folder

SIZES = {"vocab": 13, "positions": 16, "width": 16, "depth": 1, "inner": 32}
# Preset, its changes, the heads of the checkpoint, and the hidden layer of transformers' classifier.
CHECKPOINTS = {
    "bert": ("bert-tiny", {"narrow": 16}, {"pooler": {}}, "tanh"),
    "electra": ("bert-tiny", {"narrow": 8}, {"rtd": {}}, "gelu"),
    "convbert": ("convbert-tiny", {"narrow": 8}, {"mlm": {}}, "gelu"),
    "mobilebert": ("mobilebert-nano", {}, {"pooler": {}}, "tanh"),
    "mobilebert-unpooled": ("mobilebert-nano", {}, {}, None),
}


def write_checkpoint(where: Path, name: str) -> Path:
    preset, changes, heads, _ = CHECKPOINTS[name]
    sizes = {"vocab": 13, "positions": 16} if preset == "mobilebert-nano" else SIZES
    model = build(replace(PRESETS[preset], **sizes, **changes), heads=heads, seed=0)
    model.tokenizer, model.origin = small_tokenizer(), name.partition("-")[0]
    huggingface.write(model, where)
    return where


@pytest.fixture
def finetune(tmp_path, capsys):
    """Fine-tune a checkpoint for one step; return what was printed."""

    def train(recipe: str, name: str, *keys: str) -> str:
        start = (f"model={write_checkpoint(tmp_path / name, name)}", f"out={tmp_path / 'run'}")
        assert cli.main(["finetune", recipe, *start, *SETTINGS, "steps=1", *keys]) == 0
        return capsys.readouterr().err

    return train


def reviews(tmp_path: Path) -> tuple[str, ...]:
    return (f"data.train={write_reviews(tmp_path / 'train.csv')}", "data.text=body", "data.label=topic")


@needs_metrics
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_classifier_is_read_by_transformers_with_the_same_outputs(finetune, tmp_path, name):
    transformers = pytest.importorskip("transformers")
    assert "can be trained, but not written" not in finetune("classify", name, *reviews(tmp_path))
    assert cli.main(["convert", str(tmp_path / "run" / "final"), str(tmp_path / "back"), "--to", "hf"]) == 0
    ours = folder.load(tmp_path / "run" / "final")
    assert ours.head_settings["classify"]["hidden"] == CHECKPOINTS[name][3]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back").eval()
    ids = torch.arange(2, 10).reshape(1, 8)
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits, ours.heads["classify"](ours(ids)), rtol=1e-5, atol=1e-6)
    assert theirs.config.id2label == {0: "bad", 1: "good"}


@needs_metrics
def test_berts_pooler_starts_the_new_head(finetune, tmp_path):
    finetune("classify", "bert", *reviews(tmp_path), "lr=1e-30")
    before = huggingface.read(tmp_path / "bert").state_dict()["heads.pooler.dense.weight"]
    after = folder.load(tmp_path / "run" / "final").state_dict()["heads.classify.dense.weight"]
    assert torch.equal(before, after)


@needs_metrics
def test_a_head_that_transformers_lacks_is_reported_before_training_and_at_conversion(finetune, tmp_path, capsys):
    said = finetune("classify", "bert", *reviews(tmp_path), "head.hidden=none")
    assert "the model can be trained, but not written with convert --to hf: hidden of the classify head must be" in said
    assert cli.main(["convert", str(tmp_path / "run" / "final"), str(tmp_path / "back"), "--to", "hf"]) == 1
    remedy = "fine-tune with head.hidden=tanh, or drop the head with --heads none"
    assert remedy in capsys.readouterr().err


@needs_metrics
def test_a_pooled_head_is_reported_before_training_and_at_conversion(finetune, tmp_path, capsys):
    said = finetune("classify", "convbert", *reviews(tmp_path), "head.pool=mean")
    problem = "pool of the classify head must be 'cls' in ConvBertForSequenceClassification, got 'mean'"
    remedy = "fine-tune with head.pool=cls, or drop the head with --heads none"
    assert f"the model can be trained, but not written with convert --to hf: {problem}; {remedy}" in said
    convert = ["convert", str(tmp_path / "run" / "final"), str(tmp_path / "back"), "--to", "hf"]
    assert cli.main(convert) == 1
    assert f"{problem}; {remedy}" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
    assert cli.main([*convert, "--heads", "none"]) == 0
    assert "convert FOLDER HF_FOLDER --to hf --heads none" in (tmp_path / "run" / "final" / "README.md").read_text()


def test_the_beam_head_is_reported_with_the_head_that_can_be_written(finetune, tmp_path, capsys):
    (tmp_path / "squad").mkdir()
    for split in ("train", "dev"):
        content = document(
            "the film was good", question_entry("film", ("film", 4)), question_entry("good", ("good", 13))
        )
        write(tmp_path / "squad" / f"{split}-v1.1.json", content)
    settings = ("length=16", "answers.max_query=4", "answers.stride=4")
    said = finetune("squad-convbert-small", "convbert", f"data={tmp_path / 'squad'}", "task=squad", *settings)
    assert "has no ConvBert class with the heads 'beam'; fine-tune with answers.head=span" in said
    assert cli.main(["convert", str(tmp_path / "run" / "final"), str(tmp_path / "back"), "--to", "hf"]) == 1
    assert "fine-tune with answers.head=span" in capsys.readouterr().err


@needs_metrics
def test_a_model_of_our_own_keeps_a_linear_classifier(tmp_path):
    model = build(replace(PRESETS["bert-tiny"], **SIZES, narrow=16), heads={"rtd": {}}, seed=0)
    folder.save(model, tmp_path / "ours", tokenizer=small_tokenizer())
    start = (f"model={tmp_path / 'ours'}", f"out={tmp_path / 'run'}")
    assert cli.main(["finetune", "classify", *start, *SETTINGS, "steps=1", *reviews(tmp_path)]) == 0
    config = json.loads((tmp_path / "run" / "final" / "config.json").read_text())
    assert config["heads"]["classify"]["hidden"] is None
