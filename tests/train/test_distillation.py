"""A student trains with every strategy; copied parameters are frozen until the prediction stage."""

from pathlib import Path

import pytest
import torch
from tiny_runs import distillation_of, records, student_before, train

import lightbert
from lightbert.data.shards import Shards
from lightbert.models import folder

LAYERS = {"fmt_1", "fmt_2", "fmt_3"}
WORDS = {"mlm_loss", "nsp_loss"}


def weights(out: Path) -> dict[str, torch.Tensor]:
    return folder.load(out / "final").state_dict()


@pytest.mark.parametrize(
    ("strategy", "logged"),
    [
        ("bare", [WORDS] * 9),
        ("pd", [WORDS | {"kd_loss"}] * 9),
        ("akt", [LAYERS | WORDS | {"kd_loss"}] * 9),
        ("jkt", [LAYERS] * 6 + [WORDS | {"kd_loss"}] * 3),
        ("pkt", [{"fmt_1"}] * 2 + [{"fmt_2"}] * 2 + [{"fmt_3"}] * 2 + [WORDS | {"kd_loss"}] * 3),
    ],
)
def test_every_strategy_trains_its_stages(corpus: Path, tmp_path: Path, strategy: str, logged: list[set[str]]) -> None:
    outcome = train(distillation_of(corpus, tmp_path, strategy=strategy))
    assert outcome.finished
    interesting = LAYERS | WORDS | {"kd_loss"}
    assert [interesting & record.keys() for record in records(tmp_path)] == logged
    expected = WORDS | ({"kd_loss"} if strategy != "bare" else set())
    expected |= LAYERS if strategy in ("akt", "jkt", "pkt") else set()
    assert {name for name in outcome.held_out if name in interesting} == expected
    student = lightbert.load(tmp_path / "final")
    assert {*student.heads} == {"mlm", "nsp"}
    assert student.tokenizer.get_vocab() == Shards(corpus / "data").tokenizer().get_vocab()


def test_strategy_bare_loads_no_teacher(corpus: Path, tmp_path: Path) -> None:
    assert train(distillation_of(corpus, tmp_path, strategy="bare", teacher="nowhere")).finished


@pytest.mark.parametrize("strategy", ["jkt", "pkt"])
def test_copied_parameters_are_frozen_until_the_prediction_stage(corpus: Path, tmp_path: Path, strategy: str) -> None:
    teacher = folder.load(corpus / "teacher").state_dict()
    train(distillation_of(corpus, tmp_path / "layers", strategy=strategy, steps=0))
    student = weights(tmp_path / "layers")
    copied = [n for n in student if n.startswith(("embeddings.", "heads.mlm."))]
    copied = [n for n in copied if not n.startswith("embeddings.norm.")]
    assert {"embeddings.word.weight", "embeddings.project.weight", "heads.mlm.extra"} <= {*copied}
    assert all(torch.equal(student[name], teacher[name]) for name in copied)
    assert torch.equal(student["embeddings.norm.weight"], torch.ones(16))
    assert torch.equal(student["embeddings.norm.bias"], torch.zeros(16))
    train(distillation_of(corpus, tmp_path / "whole", strategy=strategy))
    assert not any(torch.equal(weights(tmp_path / "whole")[name], teacher[name]) for name in copied)


def test_nothing_is_copied_by_other_strategies_or_with_copy_off(corpus: Path, tmp_path: Path) -> None:
    teacher = folder.load(corpus / "teacher").state_dict()
    for changes, is_copied in [
        ({"strategy": "akt"}, False),
        ({"strategy": "akt", "copy": True}, True),
        ({"strategy": "pkt"}, True),
        ({"strategy": "pkt", "copy": False}, False),
    ]:
        student = student_before(distillation_of(corpus, tmp_path, **changes))
        assert torch.equal(student["embeddings.word.weight"], teacher["embeddings.word.weight"]) == is_copied


def test_tables_that_were_not_copied_are_trained_with_the_first_layer(corpus: Path, tmp_path: Path) -> None:
    recipe = distillation_of(corpus, tmp_path, copy=False, steps=0)
    start = student_before(recipe)
    train(recipe)
    assert not torch.equal(weights(tmp_path)["embeddings.word.weight"], start["embeddings.word.weight"])
    assert torch.equal(weights(tmp_path)["heads.mlm.transform.weight"], start["heads.mlm.transform.weight"])


@pytest.mark.parametrize(("norm", "frozen"), [("identity", True), ("copy", True), ("train", False)])
def test_the_embedding_norm_follows_the_recipe(corpus: Path, tmp_path: Path, norm: str, frozen: bool) -> None:
    recipe = distillation_of(corpus, tmp_path, norm=norm, steps=0)
    start = student_before(recipe)
    train(recipe)
    assert torch.equal(weights(tmp_path)["embeddings.norm.bias"], start["embeddings.norm.bias"]) == frozen
