"""The initial model of fine-tuning: config changes and preserved metadata."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from tiny_classifiers import tiny_model

from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.models import Metadata, build, folder
from lightbert.models.bert import Bert
from lightbert.nn.pooling_settings import Pooling
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.starting_model import starting_model
from lightbert.tasks.kinds.classify import Classify
from randomised import randomised


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """An ELECTRA with a classifier, as `convert` writes it."""
    config = Bert(vocab=13, positions=16, narrow=16, width=16, depth=1, n_heads=2, inner=32)
    model = build(config, heads={"classify": {"labels": 2, "hidden": "gelu"}})
    described = tiny_model(Classify(("bad", "good")))
    model.tokenizer, model.labels, model.task = described.tokenizer, described.labels, described.task
    model.pooling = Pooling("cls")
    model.origin, model.ranges = "electra", {"blocks.0.output": (-1.0, 2.0)}
    folder.save(model, tmp_path / "imported")
    return tmp_path / "imported"


def started(model: Path, **change: object):
    return starting_model(FinetuneRecipe(model=str(model), task="rte", out="unused", change=change))


def test_a_changed_model_keeps_its_weights_and_all_other_metadata(imported):
    before, after = folder.load(imported), started(imported, dropout=0.3)
    assert (before.config.dropout, after.config.dropout) == (0.1, 0.3)
    for each in fields(Metadata):
        if each.name not in ("config", "tokenizer"):
            assert getattr(after, each.name) == getattr(before, each.name) != type(getattr(before, each.name))()
    assert after.tokenizer.to_str() == before.tokenizer.to_str()
    assert all(after.state_dict()[name].equal(tensor) for name, tensor in before.state_dict().items())


def test_an_imported_electra_is_written_back_as_electra_after_a_change(imported, tmp_path):
    huggingface.write(started(imported, dropout=0.3), tmp_path / "written")
    written = json.loads((tmp_path / "written" / "config.json").read_text())
    assert (written["model_type"], written["hidden_dropout_prob"]) == ("electra", 0.3)


def test_a_smaller_depth_keeps_the_first_blocks(tmp_path):
    config = Bert(vocab=13, positions=16, narrow=8, width=16, depth=12, n_heads=2, inner=32)
    model = randomised(build(config, heads={"rtd": {}}))
    model.ranges = {"blocks.1.output": (-1.0, 2.0), "blocks.10.output": (-1.0, 1.0)}
    model.tokenizer = tiny_model(None).tokenizer
    folder.save(model, tmp_path / "deep")
    after = started(tmp_path / "deep", depth=2).eval()
    assert (after.config.depth, len(after.blocks), list(after.ranges)) == (2, 2, ["blocks.1.output"])
    ids = torch.arange(2, 10).reshape(2, 4)
    assert torch.equal(after(ids), model(ids, depth=2))
    with pytest.raises(InputError, match=r"don't match the config after change = {'depth': 13}") as error:
        started(tmp_path / "deep", depth=13)
    assert str(error.value).count("blocks.12.") == 1


def test_a_change_that_does_not_match_the_weights_is_an_error(imported):
    with pytest.raises(InputError, match="don't match the config after change"):
        started(imported, width=32)
