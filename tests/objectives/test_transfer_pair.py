"""Compatibility of teacher and student, and what is copied before training."""

from dataclasses import replace

import pytest
import torch
from transfer_pairs import MIXED, STUDENT, TEACHER, model_of

from lightbert.errors import InputError
from lightbert.models.bert import Bert
from lightbert.objectives.distill.pair import check_pair, copy_embeddings, shared_heads
from lightbert.objectives.distill.stages import Transfer

IMPORTED = Bert(vocab=40, positions=64, narrow=12, width=12, depth=3, n_heads=2, inner=24)
LAYER_NORM = replace(STUDENT, norm="layer")


def pair_of(student=STUDENT, teacher=TEACHER):
    return model_of(teacher, 2), model_of(student, 1)


class Numbered:
    """A stand-in for a tokenizer that has only token ids."""

    def __init__(self, **numbers):
        self.numbers = numbers

    def get_vocab(self):
        return self.numbers


@pytest.mark.parametrize(
    ("student", "sentence"),
    [
        (
            replace(STUDENT, vocab=41),
            "must have the same vocabulary, got 40 and 41 entries; .*lightbert prepare --tokenizer",
        ),
        (replace(STUDENT, depth=2), "must have the same number of layers, got 3 and 2;.*strategy=pd"),
        (replace(STUDENT, width=20), "must have the same width, got 16 and 20;.*transfer.maps=linear"),
        (
            replace(STUDENT, n_heads=2),
            "the same number of heads, got 4 for the teacher and 2 for the student;.*transfer.attention=0",
        ),
        (replace(MIXED, n_heads=6), "got 4 for the teacher and 6 for the student"),
        (replace(MIXED, convolution="none"), "got 4 for the teacher and 2 for the student"),
        (
            replace(STUDENT, padding="released"),
            "must have the same padding, got 'masked' and 'released'; use change.padding=masked",
        ),
    ],
    ids=["vocabulary", "depth", "width", "heads", "mixed heads", "bottleneck heads", "padding"],
)
def test_an_incompatible_pair_raises_an_error_of_one_sentence(student, sentence):
    teacher, learner = pair_of(student)
    with pytest.raises(InputError, match=sentence) as error:
        check_pair(teacher, learner, Transfer())
    assert "\n" not in str(error.value)


def test_tokenizers_must_have_the_same_token_ids_if_both_are_known():
    teacher, student = pair_of()
    teacher.tokenizer = Numbered(a=5, b=6)
    check_pair(teacher, student, Transfer())
    student.tokenizer = Numbered(a=6, b=5)
    with pytest.raises(InputError, match=r"their token ids differ; .*lightbert prepare --tokenizer"):
        check_pair(teacher, student, None)


def test_without_a_transfer_only_the_vocabularies_must_match():
    teacher, student = pair_of(replace(STUDENT, depth=2, width=20, n_heads=2))
    check_pair(teacher, student, None)


def test_a_teacher_of_another_width_and_other_heads_works_with_maps():
    teacher, student = pair_of(teacher=IMPORTED)
    check_pair(teacher, student, Transfer(maps="linear", attention=0))


@pytest.mark.parametrize(
    ("student", "heads"),
    [
        (STUDENT, 4),
        (MIXED, 2),
        (replace(STUDENT, relative="composite"), 4),
        (replace(STUDENT, n_heads=2), 0),
    ],
    ids=["attention", "mixed", "composite", "other"],
)
def test_shared_heads_are_the_attention_heads_that_both_have(student, heads):
    assert shared_heads(*pair_of(student)) == heads


def test_negative_weights_raise_an_error():
    with pytest.raises(InputError, match="variance must be >= 0, got -1"):
        Transfer(variance=-1)


def test_copying_gives_the_student_the_teachers_tables_and_heads():
    teacher, student = pair_of()
    before = {name: tensor.clone() for name, tensor in student.blocks.state_dict().items()}
    assert copy_embeddings(teacher, student) == frozenset()
    for name in ("word.weight", "position.weight", "segment.weight", "project.weight", "project.bias"):
        assert torch.equal(student.embeddings.state_dict()[name], teacher.embeddings.state_dict()[name]), name
    for name, tensor in teacher.heads["mlm"].state_dict().items():
        assert torch.equal(student.heads["mlm"].state_dict()[name], tensor), name
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.blocks.state_dict().items())


def test_copied_tables_do_not_share_memory():
    teacher, student = pair_of()
    copy_embeddings(teacher, student)
    with torch.no_grad():
        student.table.add_(1)
    assert not torch.equal(student.table, teacher.table)


def test_the_embedding_norm_is_copied_if_both_normalise():
    teacher, student = pair_of(LAYER_NORM)
    assert copy_embeddings(teacher, student) == frozenset()
    assert torch.equal(student.embeddings.norm.weight, teacher.embeddings.norm.weight)


@pytest.mark.parametrize("norm", ["identity", "copy", "train"])
def test_a_student_without_normalisation_keeps_its_norm_unless_norm_is_copy(norm):
    teacher, student = pair_of()
    before = student.embeddings.norm.weight.clone()
    free = copy_embeddings(teacher, student, norm=norm)
    expected = teacher.embeddings.norm.weight if norm == "copy" else before
    assert torch.equal(student.embeddings.norm.weight, expected)
    assert free == ({"embeddings.norm.weight", "embeddings.norm.bias"} if norm == "train" else set())


def test_the_next_sentence_head_is_copied_only_if_both_read_the_same_state():
    teacher, student = pair_of()
    assert teacher.heads["nsp"].dense is not None
    assert student.heads["nsp"].dense is None
    before = student.heads["nsp"].output.weight.clone()
    copy_embeddings(teacher, student)
    assert torch.equal(student.heads["nsp"].output.weight, before)
    teacher, student = pair_of(LAYER_NORM)
    copy_embeddings(teacher, student)
    for name, tensor in teacher.heads["nsp"].state_dict().items():
        assert torch.equal(student.heads["nsp"].state_dict()[name], tensor), name


def test_a_shorter_student_copies_the_first_positions():
    teacher, student = pair_of(replace(STUDENT, positions=10))
    assert copy_embeddings(teacher, student) == frozenset()
    assert torch.equal(student.embeddings.position.weight, teacher.embeddings.position.weight[:10])


def test_a_longer_student_trains_its_own_positions():
    teacher, student = pair_of(replace(STUDENT, positions=50))
    assert copy_embeddings(teacher, student) == {"embeddings.position.weight"}


def test_parameters_that_cannot_be_copied_are_returned_to_be_trained():
    teacher, student = pair_of(teacher=IMPORTED)
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    free = copy_embeddings(teacher, student)
    assert free == {f"embeddings.{name}" for name, _ in student.embeddings.named_parameters()}
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())
