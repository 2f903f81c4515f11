"""Files that are easily misread: lists as text, ids as labels, dev texts that are trained on, tiny dev parts."""

from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files, as_list
from lightbert.tasks.finetune.dataset import announce_data
from lightbert.tasks.finetune.recipe import FinetuneRecipe


def write(path: Path, labels: list[str]) -> str:
    path.write_text("text,label\n" + "".join(f'text {number},"{label}"\n' for number, label in enumerate(labels)))
    return str(path)


def test_lists_that_pandas_wrote_are_sets_of_labels(tmp_path: Path):
    task = own_task(Files(train=write(tmp_path / "my.csv", ["['a', 'b']", "['b']", "[]"] * 3), hold_out=0))
    assert (task.kind.name, task.kind.labels) == ("labels", ("a", "b"))
    assert [example.label for example in task.examples("train")[:3]] == [("a", "b"), ("b",), ()]


def test_other_cells_are_not_lists():
    for cell in ["[a]", "['a' 'b']", "[", "[[1]]", "[1, None]", "a, b", 3, None]:
        assert as_list(cell) == cell


def test_a_label_per_row_is_an_error_that_names_the_remedy(tmp_path: Path):
    path = write(tmp_path / "my.csv", [f"id-{number}" for number in range(30)])
    with pytest.raises(InputError, match=r"got 30 labels for 27 rows to train on; set data.label to the column"):
        announce_data(FinetuneRecipe(model="m", out="o", data=Files(train=path)))


def test_leaks_small_dev_parts_and_other_separators_are_reported(tmp_path: Path, capsys):
    def notes(files: Files) -> str:
        announce_data(FinetuneRecipe(model="m", out="o", data=files))
        return capsys.readouterr().err.partition("\n")[2]

    train = write(tmp_path / "train.csv", ["a", "b"] * 20)
    dev = write(tmp_path / "dev.csv", ["a", "b"] * 11)
    assert "22 of 22 texts in dev are also in the training data" in notes(Files(train=train, dev=dev))
    assert notes(Files(train=train, hold_out=0)) == ""
    assert notes(Files(train=train)) == "dev has only 4 examples: its metrics are rough estimates\n"
    joined = write(tmp_path / "joined.csv", ["a,b", "a", "b", "b,a"] * 3)
    assert "data.label_separator=','" in notes(Files(train=joined, kind="labels", hold_out=0))
    skewed = write(tmp_path / "skewed.csv", ["a"] * 39 + ["b"])
    assert notes(Files(train=skewed, hold_out=0)).startswith("98% of the examples have the label 'a': accuracy says")
    train = tmp_path / "colours.csv"
    colours = ["red", "green"] * 10
    train.write_text("text,colour,label\n" + "".join(f"a {c} {n},{c},{c[0]}\n" for n, c in enumerate(colours)))
    assert notes(Files(train=str(train), hold_out=0)) == ""
    leak = "the column 'colour' determines the label: if it isn't known when texts are predicted, choose another"
    assert notes(Files(train=str(train), text_b="colour", hold_out=0)) == f"{leak} data.text_b\n"
    leak = "the column 'text' contains the label: if it isn't known when texts are predicted, choose another"
    assert notes(Files(train=str(train), label="colour", hold_out=0)) == f"{leak} data.text\n"
