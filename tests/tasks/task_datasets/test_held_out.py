"""Holding out a part of the training data."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.errors import InputError
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files, hold_out
from lightbert.tasks.example import Example, TaggedSentence
from lightbert.tasks.kinds.classify import Classify

EXAMPLES = [Example(f"text {number}", label="ab"[number % 2]) for number in range(100)]


def test_the_share_is_exact_and_nothing_is_lost():
    stay, held = hold_out(EXAMPLES, 0.1)
    assert len(held) == 10
    assert sorted([*stay, *held], key=lambda each: each.text) == sorted(EXAMPLES, key=lambda each: each.text)


@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(shuffler: random.Random):
    shuffled = list(EXAMPLES)
    shuffler.shuffle(shuffled)
    assert set(hold_out(shuffled, 0.1)[1]) == set(hold_out(EXAMPLES, 0.1)[1])


def test_a_new_row_moves_at_most_one_other():
    before = set(hold_out(EXAMPLES, 0.1)[1])
    for number in range(20):
        after = set(hold_out([*EXAMPLES, Example(f"new {number}", label="a")], 0.1)[1])
        assert len(before - after) <= 1


def test_duplicate_texts_stay_together_whatever_their_labels():
    doubled = [*EXAMPLES, *(Example(each.text, label="c") for each in EXAMPLES)]
    stay, held = hold_out(doubled, 0.1)
    assert not {each.text for each in stay} & {each.text for each in held}


def test_at_least_one_row_is_held_out():
    assert len(hold_out(EXAMPLES[:3], 0.1)[1]) == 1


def test_sentences_are_held_out_by_their_words():
    stay, held = hold_out([TaggedSentence((f"w{number}",), ("O",)) for number in range(10)], 0.2)
    assert (len(stay), len(held)) == (8, 2)


def test_identical_rows_cannot_be_split():
    with pytest.raises(
        InputError, match=r"holding out 0.1 of the texts requires more distinct texts, got 1; give data.dev"
    ):
        hold_out([EXAMPLES[0]] * 5, 0.1)


def test_without_dev_the_held_out_rows_are_the_dev_split(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"{each.text},{each.label}\n" for each in EXAMPLES))
    task = own_task(Files(train=str(path), hold_out=0.2))
    train, dev = task.examples("train"), task.examples("dev")
    assert (len(train), len(dev)) == (80, 20)
    again = own_task(Files(train=str(path), hold_out=0.2), kind=Classify(("a", "b")))
    assert (again.examples("train"), again.examples("dev")) == (train, dev)


def test_a_label_that_only_occurs_in_held_out_rows_is_known(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\none,a\ntwo,b\nthree,c\n")
    task = own_task(Files(train=str(path), hold_out=0.4))
    assert task.kind == Classify(("a", "b", "c"))
