"""Entities from tags and their scores, against worked examples of conlleval's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.tasks.kinds.tokens import Entity, are_entity_tags, entities, entity_scores

CASES = {
    "IOB2": ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
    "IOB2, neighbours of one type": ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
    "IOB1, where B- only parts neighbours": (
        "I-PER I-PER B-PER O I-LOC",
        [("PER", 0, 2), ("PER", 2, 3), ("LOC", 4, 5)],
    ),
    "an I- that follows nothing": ("O I-PER O", [("PER", 1, 2)]),
    "an I- of another type": ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
    "IOBES": ("S-PER B-LOC I-LOC E-LOC O S-PER", [("PER", 0, 1), ("LOC", 1, 4), ("PER", 5, 6)]),
    "an E- ends, so that I- begins": ("B-PER E-PER I-PER", [("PER", 0, 2), ("PER", 2, 3)]),
    "an E- that follows nothing": ("O E-PER E-PER", [("PER", 1, 2), ("PER", 2, 3)]),
    "a B- that no E- ends": ("B-PER O B-PER S-PER", [("PER", 0, 1), ("PER", 2, 3), ("PER", 3, 4)]),
    "an S- inside": ("B-PER S-PER I-PER", [("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3)]),
    "BILOU": ("B-PER I-PER L-PER U-LOC", [("PER", 0, 3), ("LOC", 3, 4)]),
    "types with hyphens": ("B-a-b I-a-b I-a-c", [("a-b", 0, 2), ("a-c", 2, 3)]),
    "no types at all": ("B I O I", [("", 0, 2), ("", 3, 4)]),
    "nothing": ("O O", []),
    "no words": ("", []),
}


def test_spans_are_read_as_conlleval_reads_them():
    for name in CASES:
        tags, expected = CASES[name]
        assert entities(tags.split()) == [Entity(*each) for each in expected]


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y"]), max_size=12))
def test_every_word_with_a_tag_is_in_exactly_one_span(tags):
    found = entities(tags)
    covered = [place for entity in found for place in range(entity.start, entity.stop)]
    assert covered == [place for place, tag in enumerate(tags) if tag != "O"]
    for entity in found:
        assert {tag.partition("-")[2] for tag in tags[entity.start : entity.stop]} == {entity.type}


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=12))
def test_writing_spans_in_strict_iob2_changes_none(tags):
    strict = ["O"] * len(tags)
    for entity in entities(tags):
        strict[entity.start : entity.stop] = [f"B-{entity.type}"] + [f"I-{entity.type}"] * (
            entity.stop - entity.start - 1
        )
    assert entities(strict) == entities(tags)


def test_scores_count_whole_spans_of_the_right_type():
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    # One correct, one too short, one of the wrong type.
    predicted = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O"]]
    scores = entity_scores(truth, predicted)
    assert scores == {"f1": pytest.approx(1 / 3), "precision": pytest.approx(1 / 3), "recall": pytest.approx(1 / 3)}


def test_precision_and_recall_match_a_worked_example():
    scores = entity_scores([["B-X", "O", "B-X", "O", "B-X"]], [["B-X", "O", "O", "O", "O"]])
    assert scores == {"f1": 0.5, "precision": 1.0, "recall": pytest.approx(1 / 3)}


def test_the_same_span_in_another_sentence_does_not_match():
    assert entity_scores([["B-X"], ["O"]], [["O"], ["B-X"]])["f1"] == 0.0


def test_scores_without_any_spans_are_zero():
    assert entity_scores([["O"]], [["O"]]) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    assert entity_scores([], []) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


def test_entity_tags_are_distinguished_from_other_tags():
    for tags, expected in [
        ("B-PER I-PER O", True),
        ("I-PER O", True),
        ("B I O", True),
        ("O", False),
        ("NOUN VERB", False),
        ("B-PER NOUN", False),
        ("PER O", False),
    ]:
        assert are_entity_tags(tags.split()) is expected
