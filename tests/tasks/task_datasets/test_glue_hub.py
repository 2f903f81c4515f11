"""GLUE through datasets, with in-memory data sets instead of the Hub."""

import sys

import pytest

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue import TABLE, open_glue
from lightbert.tasks.example import Example

datasets = pytest.importorskip("datasets")


@pytest.fixture
def hub(monkeypatch):
    """A dictionary of the data sets that can be loaded, by (task, split)."""
    shelf = {}

    def load(repository, name, split):
        assert repository == "nyu-mll/glue"
        if (name, split) not in shelf:
            raise ConnectionError("the hub cannot be reached\nand more lines")
        return shelf[name, split]

    monkeypatch.setattr(datasets, "load_dataset", load)
    return shelf


def data_set(labels, **columns):
    label = datasets.Value("float32") if labels is None else datasets.ClassLabel(names=labels)
    features = {
        name: label if name == "label" else datasets.Value("int32" if name == "idx" else "string") for name in columns
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


# The label ids of each task on the Hub.
NUMBERED = {
    "cola": ["unacceptable", "acceptable"],
    "sst2": ["negative", "positive"],
    "mrpc": ["not_equivalent", "equivalent"],
    "qqp": ["not_duplicate", "duplicate"],
    "mnli": ["entailment", "neutral", "contradiction"],
    "qnli": ["entailment", "not_entailment"],
    "rte": ["entailment", "not_entailment"],
    "wnli": ["not_entailment", "entailment"],
    "ax": ["entailment", "neutral", "contradiction"],
}
TEXTS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "stsb": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
    "ax": ("premise", "hypothesis"),
}


def test_label_ids_become_label_names(hub):
    for data in ["", "hub"]:
        for name in NUMBERED:
            labels = NUMBERED[name]
            texts = {column: [f"{column} {number}" for number in range(len(labels))] for column in TEXTS[name]}
            split = next(iter(TABLE[name].splits))
            hub[name, TABLE[name].splits[split][0]] = data_set(
                labels, **texts, label=list(range(len(labels))), idx=[7 + number for number in range(len(labels))]
            )
            task = open_glue(name, data)
            examples = task.examples(split)
            assert [example.label for example in examples] == labels == list(task.kind.labels)
            assert [example.id for example in examples] == [str(7 + number) for number in range(len(labels))]
            assert [example.text for example in examples] == texts[TEXTS[name][0]]
            assert [example.text_b for example in examples] == texts.get((*TEXTS[name], "")[1], [None] * len(labels))


def test_both_halves_of_mnli_are_found(hub):
    for half in ("matched", "mismatched"):
        for kind in ("validation", "test"):
            hub["mnli", f"{kind}_{half}"] = data_set(
                NUMBERED["mnli"], premise=[half], hypothesis=[kind], label=[1 if kind == "validation" else -1], idx=[0]
            )
    task = open_glue("mnli", "hub")
    assert task.examples("dev") == [Example("matched", "validation", "neutral", "0")]
    assert task.examples("dev_mismatched") == [Example("mismatched", "validation", "neutral", "0")]
    assert task.examples("test_mismatched") == [Example("mismatched", "test", None, "0")]


def test_scores_stay_numbers_and_minus_one_is_unknown(hub):
    hub["stsb", "validation"] = data_set(
        None, sentence1=["a", "b"], sentence2=["c", "d"], label=[3.5, -1.0], idx=[0, 1]
    )
    assert [example.label for example in open_glue("STS-B", "hub").examples("dev")] == [3.5, None]


def test_a_label_id_out_of_range_is_an_error(hub):
    hub["rte", "train"] = data_set(["a", "b", "c"], sentence1=["x"], sentence2=["y"], label=[2], idx=[0])
    with pytest.raises(InputError, match=r"must be in \[0, 1\], got 2"):
        open_glue("rte", "hub").examples("train")


def test_unexpected_columns_are_an_error(hub):
    hub["rte", "train"] = data_set(["a", "b"], text=["x"], label=[0])
    with pytest.raises(InputError, match="must have the columns of GLUE, has text, label"):
        open_glue("rte", "hub").examples("train")


def test_an_unreachable_hub_is_a_one_line_error(hub):
    with pytest.raises(InputError, match=r"can't download rte .*\(the hub cannot be reached\); give .*data=FOLDER$"):
        open_glue("rte", "hub").examples("train")


def test_a_missing_datasets_package_is_an_error_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'lightbert\[hf\]'"):
        open_glue("rte", "hub").examples("train")
