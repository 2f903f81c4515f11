"""`lightbert analyse`: the list, both analyses as text and JSON, and error messages."""

import json
import sys

import pytest
from rich.console import Console

from extras import needs_plots
from lightbert import cli
from lightbert.commands.analyse import ANALYSES, Config, run
from lightbert.models import folder
from reading_pairs import MIXED, STUDENT, TEACHER, reader

pytestmark = needs_plots

RECORDS = [
    {"kind": "train", "step": 1, "fmt_1": 3.0, "at_1": 0.3},
    {"kind": "train", "step": 2, "fmt_2": 3.0, "at_2": 0.3},
    {"kind": "train", "step": 3, "mlm_loss": 3.0},
    {"kind": "held-out", "step": 3, "fmt_1": 1.5, "fmt_2": 2.5, "at_1": 0.25, "at_2": 0.5, "mlm_loss": 3.0},
]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A run of each kind, and models by name."""
    where = tmp_path_factory.mktemp("there")
    for name, records in (("run", RECORDS), ("pretrained", RECORDS[2:3])):
        (where / name).mkdir()
        (where / name / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pairs = {"teacher": (TEACHER, 1), "student": (STUDENT, 2), "mixed": (MIXED, 3)}
    models = {name: reader(*pair) for name, pair in pairs.items()}
    models["shallow"] = reader(STUDENT, depth=2)
    models["headed"] = reader(STUDENT, n_heads=2)
    for name, model in models.items():
        folder.save(model, where / name, tokenizer=model.tokenizer)
    return where


def text(report):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def test_without_a_name_all_analyses_are_listed(capsys):
    assert cli.main(["analyse", "--json"]) == 0
    assert [*json.loads(capsys.readouterr().out)["analyses"]] == [*ANALYSES]
    assert all(name in text(run(Config())) for name in ANALYSES)


def test_the_transfer_of_a_run_is_plotted_in_its_folder_and_printed(there, capsys):
    assert cli.main(["analyse", "transfer", str(there / "run"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "picture": str(there / "run" / "transfer.png"),
        "metrics": {"fmt_1": 1.5, "fmt_2": 2.5, "at_1": 0.25, "at_2": 0.5},
        "split": "held-out",
        "stages": [
            {"learns": "1", "steps": [1, 1]},
            {"learns": "2", "steps": [2, 2]},
            {"learns": "predictions", "steps": [3, 3]},
        ],
    }
    assert (there / "run" / "transfer.png").stat().st_size > 1000


def test_the_printed_report_has_a_row_per_layer_and_the_path_of_the_plot(there, tmp_path):
    shown = text(run(Config("transfer", str(there / "run"), out=str(tmp_path / "x.svg"))))
    assert "│ 2     │ 2.5 │ 0.5  │" in shown
    assert f"picture: {tmp_path / 'x.svg'}" in shown
    assert (tmp_path / "x.svg").is_file()


def test_the_folder_of_a_plot_is_created(there, tmp_path):
    run(Config("transfer", str(there / "run"), out=str(tmp_path / "new" / "x.png")))
    assert (tmp_path / "new" / "x.png").is_file()


def test_attention_metrics_cover_all_layers_and_the_plot_the_selected_ones(there, tmp_path, capsys):
    line = ["analyse", "attention", str(there / "mixed"), "--teacher", str(there / "teacher"), "--text", "w1 w2"]
    assert cli.main([*line, "--layers", "2", "--out", str(tmp_path / "two.png"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tokens"] == ["[CLS]", "w1", "w2", "[SEP]"]
    assert {layer: len(heads) for layer, heads in report["heads"].items()} == {"1": 2, "2": 2, "3": 2}
    assert report["metrics"] == {f"kl_{n}": pytest.approx(sum(report["heads"][str(n)]) / 2) for n in (1, 2, 3)}
    assert report["picture"] == str(tmp_path / "two.png")
    assert (tmp_path / "two.png").stat().st_size > 1000


def test_the_attention_of_one_model_needs_no_teacher(there, tmp_path, capsys):
    line = ["analyse", "attention", str(there / "mixed"), "--text", "w1 w2", "--out", str(tmp_path / "one.png")]
    assert cli.main([*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tokens"] == ["[CLS]", "w1", "w2", "[SEP]"]
    assert {layer: len(heads) for layer, heads in report["heads"].items()} == {"1": 2, "2": 2, "3": 2}
    assert report["metrics"] == {f"entropy_{n}": pytest.approx(sum(report["heads"][str(n)]) / 2) for n in (1, 2, 3)}
    assert (tmp_path / "one.png").stat().st_size > 1000
    assert cli.main([*line, "--mean"]) == 0
    assert "entropy" in capsys.readouterr().out


def test_a_model_has_no_divergence_from_itself_and_the_default_plot_is_in_the_working_directory(
    there, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    student = str(there / "student")
    report = run(Config("attention", student, teacher=student, text="w1 w2 w3", mean=True))
    assert report.metrics == {"kl_1": 0.0, "kl_2": 0.0, "kl_3": 0.0}
    assert (tmp_path / "attention.png").is_file()
    assert "│ 3     │ 0  │" in text(report)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("transfr run", "unknown analysis 'transfr'; did you mean 'transfer'?"),
        ("transfer", "the analysis 'transfer' requires a run or a model: lightbert analyse transfer RUN"),
        ("transfer nowhere", "'nowhere/metrics.jsonl' not found; give the folder of a run"),
        ("transfer pretrained", "'pretrained/metrics.jsonl' has no layer losses"),
        ("transfer run --out x.doc", "unknown picture format 'doc'"),
        (
            "transfer run --out run/metrics.jsonl/x.png",
            "must be a folder, but is a file; choose another name",
        ),
        ("attention student", "the analysis 'attention' requires a text; add --text TEXT"),
        ("attention student --text w1 --layers 4", "layers must be in [1, 3], got 4"),
        ("attention student --teacher teacher", "add --text TEXT"),
        ("attention nowhere --teacher teacher --text w1", "model 'nowhere' not found"),
        ("attention shallow --teacher teacher --text w1", "must have the same number of layers, got 3 and 2"),
        ("attention headed --teacher teacher --text w1", "compare the mean over heads with --mean"),
        ("attention student --teacher teacher --text w1 --layers 4", "layers must be in [1, 3], got 4"),
        (
            "attention student --teacher teacher --text w1 --layers 1-2",
            "layers must be numbers separated by commas, such as 1,4, got '1-2'",
        ),
    ],
)
def test_bad_input_prints_one_sentence(line, sentence, there, monkeypatch, capsys):
    monkeypatch.chdir(there)
    assert cli.main(["analyse", *line.split()]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("lightbert: ")
    assert sentence in output.err
    assert output.err.count("\n") == 1
    assert not (there / "attention.png").exists()


def test_without_matplotlib_the_error_names_the_package_to_install(there, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["analyse", "transfer", str(there / "run")]) == 1
    assert "pip install 'lightbert[plots]'" in capsys.readouterr().err
