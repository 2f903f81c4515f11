"""Which teachers and students fit, and what a student takes over before it learns anything."""

from dataclasses import replace

import pytest
import torch
from transfer_pairs import MIXED, STUDENT, TEACHER, model_of

from lightbert.errors import InputError
from lightbert.models.bert import Bert
from lightbert.objectives.distill.pair import check_pair, copy_embeddings, shared_heads
from lightbert.objectives.distill.transfer_settings import Transfer

IMPORTED = Bert(vocab=40, positions=64, narrow=12, width=12, depth=3, n_heads=2, inner=24)
LAYER_NORM = replace(STUDENT, norm="layer")


def pair_of(student=STUDENT, teacher=TEACHER):
    return model_of(teacher, 2), model_of(student, 1)


class Numbered:
    """A tokenizer, as far as its numbers go."""

    def __init__(self, **numbers):
        self.numbers = numbers

    def get_vocab(self):
        return self.numbers


@pytest.mark.parametrize(
    ("student", "sentence"),
    [
        (replace(STUDENT, vocab=41), "the teacher knows 40 words, the student 41: .*lightbert prepare --tokenizer"),
        (replace(STUDENT, depth=2), "the teacher has 3 layers, the student 2.*strategy=pd"),
        (replace(STUDENT, width=20), "give 16 channels, the student's 20.*transfer.maps=linear"),
        (replace(STUDENT, n_heads=2), "the teacher has 4 heads, the student 2.*transfer.attention=0"),
        (replace(MIXED, n_heads=6), "the teacher has 4 heads, the student 6"),
        (replace(MIXED, convolution="none"), "the teacher has 4 heads, the student 2"),
        (replace(STUDENT, padding="released"), "only the student reads padding as text.*change.padding=masked"),
    ],
    ids=["vocabulary", "depth", "width", "heads", "mixed heads", "bottleneck heads", "padding"],
)
def test_a_pair_that_does_not_fit_is_refused_in_one_sentence(student, sentence):
    teacher, learner = pair_of(student)
    with pytest.raises(InputError, match=sentence) as refused:
        check_pair(teacher, learner, Transfer())
    assert "\n" not in str(refused.value)


def test_words_must_have_the_same_numbers_where_both_are_known():
    teacher, student = pair_of()
    teacher.tokenizer = Numbered(a=5, b=6)
    check_pair(teacher, student, Transfer())
    student.tokenizer = Numbered(a=6, b=5)
    with pytest.raises(InputError, match=r"number their words differently: .*lightbert prepare --tokenizer"):
        check_pair(teacher, student, None)


def test_a_teacher_of_predictions_needs_the_same_vocabulary_and_nothing_else():
    teacher, student = pair_of(replace(STUDENT, depth=2, width=20, n_heads=2))
    check_pair(teacher, student, None)


def test_a_teacher_of_another_width_and_other_heads_serves_through_maps():
    teacher, student = pair_of(teacher=IMPORTED)
    check_pair(teacher, student, Transfer(maps="linear", attention=0))


@pytest.mark.parametrize(
    ("student", "heads"),
    [
        (STUDENT, 4),
        (MIXED, 2),
        (replace(MIXED, mixer="composite"), 4),
        (replace(MIXED, mixer="attention"), 4),
        (replace(STUDENT, n_heads=2), 0),
    ],
    ids=["attention", "mixed", "composite", "hybrid", "other"],
)
def test_attention_is_shared_by_the_heads_that_both_have(student, heads):
    assert shared_heads(*pair_of(student)) == heads


def test_negative_weights_are_refused():
    with pytest.raises(InputError, match="variance must be >= 0, got -1"):
        Transfer(variance=-1)


def test_tables_and_heads_are_the_teachers_after_copying():
    teacher, student = pair_of()
    before = {name: tensor.clone() for name, tensor in student.blocks.state_dict().items()}
    assert copy_embeddings(teacher, student) == frozenset()
    for name in ("word.weight", "position.weight", "segment.weight", "project.weight", "project.bias"):
        assert torch.equal(student.embeddings.state_dict()[name], teacher.embeddings.state_dict()[name]), name
    for name, tensor in teacher.heads["mlm"].state_dict().items():
        assert torch.equal(student.heads["mlm"].state_dict()[name], tensor), name
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.blocks.state_dict().items())


def test_a_copy_is_a_copy():
    teacher, student = pair_of()
    copy_embeddings(teacher, student)
    with torch.no_grad():
        student.table.add_(1)
    assert not torch.equal(student.table, teacher.table)


def test_the_norm_of_embeddings_is_copied_where_both_normalise():
    teacher, student = pair_of(LAYER_NORM)
    assert copy_embeddings(teacher, student) == frozenset()
    assert torch.equal(student.embeddings.norm.weight, teacher.embeddings.norm.weight)


@pytest.mark.parametrize("norm", ["identity", "copy", "train"])
def test_a_student_without_normalisation_keeps_its_norm_unless_told_to_copy(norm):
    teacher, student = pair_of()
    before = student.embeddings.norm.weight.clone()
    free = copy_embeddings(teacher, student, norm=norm)
    expected = teacher.embeddings.norm.weight if norm == "copy" else before
    assert torch.equal(student.embeddings.norm.weight, expected)
    assert free == ({"embeddings.norm.weight", "embeddings.norm.bias"} if norm == "train" else set())


def test_the_next_sentence_head_is_copied_only_if_it_reads_the_same_vector():
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


def test_a_shorter_student_takes_the_first_positions():
    teacher, student = pair_of(replace(STUDENT, positions=10))
    assert copy_embeddings(teacher, student) == frozenset()
    assert torch.equal(student.embeddings.position.weight, teacher.embeddings.position.weight[:10])


def test_a_longer_student_learns_its_own_positions():
    teacher, student = pair_of(replace(STUDENT, positions=50))
    assert copy_embeddings(teacher, student) == {"embeddings.position.weight"}


def test_what_cannot_be_copied_is_named_and_then_all_of_it_is_trained():
    teacher, student = pair_of(teacher=IMPORTED)
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    free = copy_embeddings(teacher, student)
    assert free == {f"embeddings.{name}" for name, _ in student.embeddings.named_parameters()}
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())
