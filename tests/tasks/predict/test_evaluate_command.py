"""`lightbert evaluate`: its output, its files, and errors for invalid input."""

import json
import zipfile

import pytest
from glue_files import write_glue
from tiny_classifiers import tiny_model, write_tiny_model

from extras import needs_metrics
from lightbert import cli
from lightbert.interop import huggingface
from lightbert.models import folder
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.spans import Spans

REVIEWS = Classify(("bad", "good"))
ENTAILMENT = Classify(("not_entailment", "entailment"))


@pytest.fixture
def evaluate(capsys):
    """Run the command; return its exit code, the JSON object on stdout if requested, and stderr."""

    def run(*arguments):
        code = cli.main(["evaluate", *map(str, arguments)])
        output = capsys.readouterr()
        question_entry = code == 0 and "--json" in arguments
        return code, json.loads(output.out) if question_entry else output.out, output.err

    return run


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("body,topic\ngood film,good\nbad film,bad\nthe film was bad .,bad\n")
    return path


@pytest.fixture
def glue(tmp_path):
    return write_glue(tmp_path / "glue")


@needs_metrics
def test_a_custom_table_is_evaluated_by_its_columns(evaluate, tmp_path, table):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    out = tmp_path / "out"
    code, report, _ = evaluate(model, "--data", table, "--text", "body", "--label", "topic", "--out", out, "--json")
    assert code == 0
    assert 0 <= report["metrics"]["accuracy"] <= 1
    assert report["confusion"]["labels"] == ["bad", "good"]
    assert sum(map(sum, report["confusion"]["counts"])) == 3
    assert {"error", "brier", "bins"} == report["calibration"].keys()
    assert sorted(path.name for path in out.glob("[!.]*")) == ["predictions.jsonl", "report.json", "report.md"]
    assert report["files"] == [str(out / name) for name in ("predictions.jsonl", "report.json", "report.md")]
    assert json.loads((out / "report.json").read_text())["metrics"] == report["metrics"]
    first = json.loads((out / "predictions.jsonl").read_text().splitlines()[0])
    assert (first["text"], first["true"], first["label"] in REVIEWS.labels) == ("good film", "good", True)
    page = (out / "report.md").read_text()
    assert f"| accuracy | {report['metrics']['accuracy']:.4f} |" in page
    assert report["data"] == str(table)
    assert page.startswith(f"# own, dev: {model} on {table}\n")
    assert f"| tokens per second | {report['tokens_per_second']:,.0f} |" in page


@needs_metrics
def test_the_terminal_output_is_tables(evaluate, tmp_path, table):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    code, page, _ = evaluate(model, "--task", "own", "--data", table, "--text", "body", "--label", "topic")
    assert code == 0
    for title in ("Metrics", "Labels", "Confusion matrix", "Calibration", "Most wrong", "tokens per second"):
        assert title in page


@needs_metrics
def test_a_glue_task_is_found_in_its_folder(evaluate, tmp_path, glue):
    model = write_tiny_model(tmp_path / "model", ENTAILMENT)
    code, report, _ = evaluate(model, "--task", "rte", "--data", glue, "--json")
    assert code == 0
    assert (report["task"], report["split"], report["examples"]) == ("rte", "dev", 2)


@needs_metrics
def test_without_a_task_the_task_of_the_model_is_used(evaluate, tmp_path, glue):
    model = tiny_model(ENTAILMENT)
    model.task["task"] = "qnli"
    folder.save(model, tmp_path / "model")
    code, report, _ = evaluate(tmp_path / "model", "--data", glue, "--json")
    assert code == 0
    assert report["task"] == "qnli"


@needs_metrics
def test_an_imported_classifier_is_evaluated_by_the_label_names_of_its_config(evaluate, tmp_path, table):
    model = tiny_model(None, "classify", labels=2, hidden="gelu")
    model.labels = ("good", "bad")
    huggingface.write(model, tmp_path / "theirs")
    code, report, _ = evaluate(tmp_path / "theirs", "--data", table, "--text", "body", "--label", "topic", "--json")
    assert code == 0
    assert report["confusion"]["labels"] == ["good", "bad"]


@needs_metrics
def test_unnamed_labels_can_be_named(evaluate, tmp_path, table):
    huggingface.write(tiny_model(None, "classify", labels=2, hidden="gelu"), tmp_path / "theirs")
    columns = ("--data", table, "--text", "body", "--label", "topic")
    code, _, error = evaluate(tmp_path / "theirs", *columns)
    assert code == 1
    assert "the outputs of the model have no label names (LABEL_0, LABEL_1); add --labels" in error
    code, report, _ = evaluate(tmp_path / "theirs", *columns, "--labels", "good, bad", "--json")
    assert code == 0
    assert report["confusion"]["labels"] == ["good", "bad"]


def test_an_imported_multilabel_classifier_is_evaluated_as_multilabel(evaluate, tmp_path):
    data = tmp_path / "dev.jsonl"
    data.write_text('{"text": "good film", "label": ["x", "y"]}\n{"text": "bad", "label": []}\n')
    model = tiny_model(Labels(("LABEL_0", "LABEL_1")), hidden="gelu")
    huggingface.write(model, tmp_path / "theirs")
    code, _, error = evaluate(tmp_path / "theirs", "--data", data)
    assert code == 1
    assert "the outputs of the model have no label names (LABEL_0, LABEL_1); add --labels" in error
    code, report, _ = evaluate(tmp_path / "theirs", "--data", data, "--labels", "x,y", "--json")
    assert code == 0
    assert report["metrics"].keys() == {"micro_f1", "macro_f1", "accuracy"}


def test_rows_without_labels_are_predicted_as_a_test_set(evaluate, tmp_path):
    (tmp_path / "new.csv").write_text("text\ngood film\n")
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    code, report, _ = evaluate(
        model, "--data", tmp_path / "new.csv", "--split", "test", "--out", tmp_path / "o", "--json"
    )
    assert code == 0
    assert report["metrics"] == {}
    assert [path.name for path in (tmp_path / "o").glob("[!.]*")] == ["predictions.jsonl"]


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "paragraphs": [
                {
                    "context": "the film was good",
                    "qas": [
                        {"id": "a", "question": "good ?", "answers": [{"text": "film", "answer_start": 4}]},
                        {"id": "b", "question": "bad ?", "answers": [{"text": "good", "answer_start": 13}]},
                    ],
                }
            ]
        }
    ],
}


def test_squads_predictions_are_scored_without_a_model(evaluate, tmp_path):
    (tmp_path / "dev.json").write_text(json.dumps(SQUAD))
    (tmp_path / "preds.json").write_text(json.dumps({"a": "The film!", "b": "film was good"}))
    arguments = ("--task", "squad", "--data", tmp_path / "dev.json", "--predictions", tmp_path / "preds.json")
    code, report, _ = evaluate(*arguments, "--json")
    assert code == 0
    assert report["metrics"] == {"exact_match": 50.0, "f1": 75.0}
    assert "exact_match" in evaluate(*arguments)[1]


def test_a_reader_writes_a_file_that_scores_as_the_reader_does(evaluate, tmp_path):
    (tmp_path / "dev.json").write_text(json.dumps(SQUAD))
    model = write_tiny_model(tmp_path / "model", Spans(stride=4, max_query=4))
    data = ("--task", "squad", "--data", tmp_path / "dev.json", "--json")
    _, report, _ = evaluate(model, *data, "--out", tmp_path / "out")
    _, scored, _ = evaluate(*data, "--predictions", tmp_path / "out" / "predictions.json")
    assert scored["metrics"]["f1"] == pytest.approx(100 * report["metrics"]["f1"])
    assert scored["metrics"]["exact_match"] == pytest.approx(100 * report["metrics"]["exact_match"])


def test_test_sets_are_collected_for_the_leaderboard(evaluate, tmp_path, glue):
    handed_in = tmp_path / "handed-in"
    positive = Classify(("negative", "positive"))
    models = {"sst2": positive, "cola": Classify(("unacceptable", "acceptable"))}
    for name, kind in models.items():
        model = write_tiny_model(tmp_path / name, kind)
        assert evaluate(model, "--task", name, "--data", glue, "--split", "test", "--out", handed_in)[0] == 0
    path = tmp_path / "submission.zip"
    code, report, _ = evaluate("--predictions", handed_in, "--submission", path, "--json")
    assert code == 0
    assert report["tables"] == ["CoLA.tsv", "SST-2.tsv"]
    assert "RTE.tsv" in report["missing"]
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["CoLA.tsv", "SST-2.tsv"]
        assert archive.read("CoLA.tsv") == (handed_in / "CoLA.tsv").read_bytes()


def test_both_halves_of_mnli_have_a_table(evaluate, tmp_path, glue):
    model = write_tiny_model(tmp_path / "model", Classify(("contradiction", "entailment", "neutral")))
    for split in ("test", "test_mismatched"):
        evaluate(model, "--task", "mnli", "--data", glue, "--split", split, "--out", tmp_path / "out")
    assert {"MNLI-m.tsv", "MNLI-mm.tsv"} <= {path.name for path in (tmp_path / "out").iterdir()}


@needs_metrics
def test_leaderboard_tables_are_scored_if_labels_are_known(evaluate, tmp_path, glue):
    for task, rows, metrics in [
        ("rte", "0\tentailment\n1\tentailment\n", {"accuracy": 0.5}),
        ("wnli", "1\t0\n0\t1\n", {"accuracy": 1.0, "f1": 1.0, "mcc": 1.0}),
        ("stsb", "0\t1.5\n", {"mse": 2.25}),
    ]:
        (tmp_path / "table.tsv").write_text(f"index\tprediction\n{rows}")
        arguments = ("--task", task, "--data", glue, "--predictions", tmp_path / "table.tsv", "--json")
        code, report, _ = evaluate(*arguments)
        assert code == 0
        assert report["metrics"].items() >= metrics.items()


def test_an_invalid_prediction_table_is_a_one_line_error(evaluate, tmp_path, glue):
    for content, sentence in [
        (
            "index\tprediction\n0\tentailment\n",
            "must have a prediction for every example, 1 of 2 are missing, the first is '1'",
        ),
        (
            "index\tprediction\n0\tentailment\n1\tmaybe\n",
            "must be one of entailment, not_entailment, got 'maybe'",
        ),
        ("index\tprediction\n0 entailment\n", "must be an index, a tab and a prediction, got '0 entailment'"),
        ("id,label\n", "must begin with the header 'index\\tprediction', got 'id,label'"),
        ("", "is empty or not UTF-8"),
    ]:
        (tmp_path / "RTE.tsv").write_text(content)
        code, _, error = evaluate("--task", "rte", "--data", glue, "--predictions", tmp_path / "RTE.tsv")
        assert code == 1
        assert sentence in error
        assert error.count("\n") == 1


def test_invalid_arguments_are_a_one_line_error(evaluate, tmp_path, monkeypatch, table, glue):
    for arguments, sentence in [
        ((), "evaluate requires a model or predictions; give a model folder, or --predictions FILE"),
        (("--predictions", "p.json"), "requires a task and its data; add --task and --data"),
        (("--predictions", "p.json", "--task", "own", "--data", "x"), "got 'own'"),
        (("--submission", "s.zip"), "add --predictions FOLDER"),
        (("--submission", "s.zip", "--predictions", "nowhere"), "must contain predictions such as CoLA.tsv"),
        (("nowhere",), "model 'nowhere' not found"),
        (("MODEL",), "evaluate requires data; add --data FILE"),
        (
            ("MODEL", "--data", "TABLE", "--text", "body", "--label", "topic", "--worst", "-1"),
            "worst must be >= 0, got -1",
        ),
        (
            ("MODEL", "--data", "TABLE", "--text", "body", "--label", "topic", "--batch", "-1"),
            "batch must be >= 0, got -1",
        ),
        (("MODEL", "--data", "TABLE"), "'text'"),
        (("MODEL", "--data", "TABLE", "--text", "body"), "'label'"),
        (("MODEL", "--data", "TABLE", "--text", "body", "--label", "body"), "'good film'"),
        (("MODEL", "--task", "glu", "--data", "TABLE"), "unknown task 'glu'"),
        (
            ("MODEL", "--task", "sst2", "--data", "GLUE", "--text-b", "x"),
            "--text-b is for own files, but the task is 'sst2'",
        ),
        (("MODEL", "--task", "sst2", "--data", "GLUE", "--kind", "labels"), "--kind is for own files"),
        (("MODEL", "--task", "sst2", "--data", "GLUE"), "among those of the model, bad, good, got 'positive'"),
        (
            ("MODEL", "--task", "stsb", "--data", "GLUE"),
            "requires a model for tasks of kind 'regress', got one for 'classify'",
        ),
        (("MODEL", "--data", "missing.csv"), "missing.csv"),
        (("MODEL", "--data", "TABLE", "--text", "body", "--label", "topic", "--split", "deev"), "did you mean 'dev'"),
        (("BODY", "--data", "TABLE", "--text", "body", "--label", "topic"), "no head for a task"),
    ]:
        named = tmp_path / "named.csv"
        named.write_text("text,label\ngood film,good\n")
        places = {
            "MODEL": write_tiny_model(tmp_path / "model", REVIEWS),
            "BODY": write_tiny_model(tmp_path / "body", None),
            "TABLE": table,
            "NAMED": named,
            "GLUE": glue,
        }
        monkeypatch.chdir(tmp_path)
        code, output, error = evaluate(*(places.get(argument, argument) for argument in arguments))
        assert code == 1
        assert output == ""
        assert sentence in error
        assert error.startswith("lightbert: ")
        assert error.count("\n") == 1
