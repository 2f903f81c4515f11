"""Unusual pairs of teacher and student, and further use of a distilled student."""

from pathlib import Path

import pytest
import torch
from tiny_runs import distillation_of, train, write_model

import lightbert
from lightbert.data.shards import Shards
from lightbert.interop import huggingface
from lightbert.models import add_head, folder
from lightbert.models.bert import Bert
from lightbert.models.hybrid import Hybrid
from lightbert.nn.encoder import Encoder


def test_a_student_with_mixed_attention_learns_from_a_teacher_with_plain_attention(
    corpus: Path, tmp_path: Path
) -> None:
    model = {"mixer": "mixed", "shell": "bottleneck", "norm": "none", "embeddings": "trigram", "feedforwards": 2}
    sizes = {"positions": 32, "narrow": 8, "width": 16, "block_width": 8, "depth": 3, "n_heads": 2, "inner": 16}
    student = lightbert.build(Hybrid(**model, **sizes, vocab=Shards(corpus / "data").vocab))
    folder.save(student, tmp_path / "hybrid")
    recipe = distillation_of(corpus, tmp_path / "out", model=str(tmp_path / "hybrid"), change={})
    outcome = train(recipe)
    assert outcome.finished
    assert {"at_1", "at_3", "fmt_3"} <= outcome.held_out.keys()
    before = student.state_dict()["blocks.1.mixer.convolution.kernel.weight"]
    after = folder.load(tmp_path / "out" / "final").state_dict()["blocks.1.mixer.convolution.kernel.weight"]
    assert not torch.equal(before, after)


@pytest.fixture
def hugging_face_teacher(corpus: Path, tmp_path: Path) -> Path:
    """A random BERT in transformers' format, wider and with other tables than the student."""
    torch.manual_seed(1)
    shards = Shards(corpus / "data")
    config = Bert(vocab=shards.vocab, positions=32, narrow=24, width=24, depth=3, n_heads=2, inner=32)
    model = lightbert.build(config, heads={"mlm": {}})
    model.tokenizer = shards.tokenizer()
    huggingface.write(model, tmp_path / "bert")
    return tmp_path / "bert"


def test_a_wider_hugging_face_teacher_works_with_learned_maps(
    corpus: Path, tmp_path: Path, hugging_face_teacher: Path
) -> None:
    changes = {"teacher": str(hugging_face_teacher), "transfer": {"maps": "linear"}}
    assert train(distillation_of(corpus, tmp_path / "out", **changes), stop_after=5).step == 5
    assert train(distillation_of(corpus, tmp_path / "out", **changes)).finished
    student = lightbert.load(tmp_path / "out/final")
    assert student.width == 16
    assert not [name for name in student.state_dict() if "maps" in name]


def same_states(one: Encoder, other: Encoder) -> bool:
    ids = torch.randint(5, one.table.shape[0], (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return torch.equal(one(ids), other(ids))


def test_the_student_converts_to_hugging_face_and_back(corpus: Path, tmp_path: Path) -> None:
    train(distillation_of(corpus, tmp_path, strategy="pd"))
    student = lightbert.load(tmp_path / "final")
    huggingface.write(student, tmp_path / "theirs")
    back = lightbert.load(tmp_path / "theirs")
    assert same_states(student, back)
    assert {*back.heads} == {"mlm", "nsp"}


def test_a_task_head_can_be_added_to_the_student(corpus: Path, tmp_path: Path) -> None:
    train(distillation_of(corpus, tmp_path, strategy="pd"))
    student = lightbert.load(tmp_path / "final")
    add_head(student, "classify", {"labels": 3})
    assert student.heads["classify"](student(torch.tensor([[2, 7, 8, 3]]))).shape == (1, 3)


def test_a_student_can_start_from_a_folder(corpus: Path, tmp_path: Path) -> None:
    sizes = {"block_width": 8, "depth": 3, "n_heads": 2, "inner": 16}
    write_model(tmp_path / "student", Shards(corpus / "data").vocab, "mobilebert-nano", **sizes)
    recipe = distillation_of(corpus, tmp_path / "out", model=str(tmp_path / "student"), change={})
    assert train(recipe).finished
