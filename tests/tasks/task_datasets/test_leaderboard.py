"""The zip file for the GLUE leaderboard."""

import zipfile

import pytest

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue_results import collect, write_predictions
from lightbert.tasks.example import Example

# The first and last label of each task, and their spelling on the leaderboard.
ANSWERS = {
    "cola": ("CoLA.tsv", {"unacceptable": "0", "acceptable": "1"}),
    "sst2": ("SST-2.tsv", {"negative": "0", "positive": "1"}),
    "mrpc": ("MRPC.tsv", {"not_equivalent": "0", "equivalent": "1"}),
    "mnli": ("MNLI-m.tsv", {"entailment": "entailment", "contradiction": "contradiction"}),
    "mnli-mm": ("MNLI-mm.tsv", {"neutral": "neutral", "contradiction": "contradiction"}),
    "qnli": ("QNLI.tsv", {"entailment": "entailment", "not_entailment": "not_entailment"}),
    "qqp": ("QQP.tsv", {"not_duplicate": "0", "duplicate": "1"}),
    "rte": ("RTE.tsv", {"entailment": "entailment", "not_entailment": "not_entailment"}),
    "wnli": ("WNLI.tsv", {"not_entailment": "0", "entailment": "1"}),
    "ax": ("AX.tsv", {"entailment": "entailment", "neutral": "neutral"}),
}


def answered(labels):
    examples = [Example("some text", id=str(number)) for number in range(len(labels))]
    return examples, [{"label": label} for label in labels]


def scored(scores):
    examples = [Example("some text", "another", id=str(number)) for number in range(len(scores))]
    return examples, [{"score": score} for score in scores]


def everything():
    return {name: answered(list(labels)) for name, (_, labels) in ANSWERS.items()} | {"stsb": scored([2.0])}


def write_tables(folder, results):
    for name, (examples, predictions) in results.items():
        task, split = ("mnli", "test_mismatched") if name == "mnli-mm" else (name, "test")
        write_predictions(folder, task, split, examples, predictions)


def submit(path, results):
    """Write the tables to a folder next to the zip file, then collect them."""
    folder = path.with_suffix("")
    folder.mkdir()
    write_tables(folder, results)
    return collect(folder, path)


def tables(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.parametrize("name", ANSWERS)
def test_labels_are_written_as_the_leaderboard_requires(tmp_path, name):
    file, spellings = ANSWERS[name]
    submit(tmp_path / "glue.zip", {name: answered(list(spellings))})
    first, second = spellings.values()
    assert tables(tmp_path / "glue.zip") == {file: f"index\tprediction\n0\t{first}\n1\t{second}\n"}


def test_scores_have_three_decimals_and_stay_in_range(tmp_path):
    submit(tmp_path / "glue.zip", {"stsb": scored([5.2, -0.1, 3.14159, -0.0])})
    assert tables(tmp_path / "glue.zip") == {"STS-B.tsv": "index\tprediction\n0\t5.000\n1\t0.000\n2\t3.142\n3\t0.000\n"}


def test_all_eleven_tables_are_there(tmp_path):
    submission = submit(tmp_path / "glue.zip", everything())
    assert submission.missing == ()
    assert set(tables(tmp_path / "glue.zip")) == set(submission.written)
    assert len(submission.written) == 11


def test_missing_tables_are_listed(tmp_path):
    submission = submit(tmp_path / "glue.zip", {"rte": answered(["entailment"]), "cola": answered(["acceptable"])})
    assert submission.written == ("CoLA.tsv", "RTE.tsv")
    assert "MNLI-mm.tsv" in submission.missing
    assert len(submission.missing) == 9


def test_the_same_predictions_give_the_same_bytes_in_any_order(tmp_path):
    submit(tmp_path / "a.zip", everything())
    submit(tmp_path / "b.zip", dict(reversed(everything().items())))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_invalid_predictions_write_no_file(tmp_path):
    for results, sentence in [
        ({"squad": answered(["x"])}, "unknown GLUE test set 'squad'"),
        ({"rte": answered(["neutral"])}, "unknown label of RTE 'neutral'"),
        ({"stsb": scored([float("nan")])}, "diverged"),
        ({"rte": ([Example("a"), Example("b")], [{"label": "entailment"}] * 2)}, "ids of rte must be unique"),
        ({"rte": ([Example("a")], [])}, "rte requires one prediction per example, got 0 for 1 examples"),
    ]:
        with pytest.raises(InputError, match=sentence):
            write_tables(tmp_path, results)
        assert list(tmp_path.iterdir()) == []


def test_a_folder_without_tables_writes_no_file(tmp_path):
    with pytest.raises(InputError, match=r"must contain predictions such as CoLA\.tsv: write them first"):
        collect(tmp_path, tmp_path / "glue.zip")
    assert list(tmp_path.iterdir()) == []
