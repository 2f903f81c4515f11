"""`lightbert analyse`: the list, single analyses and all, as text and JSON, and error messages."""

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
        "files": [str(there / "run" / "transfer.png")],
        "metrics": {"fmt_1": 1.5, "fmt_2": 2.5, "at_1": 0.25, "at_2": 0.5},
        "analyses": {
            "transfer": {
                "split": "held-out",
                "stages": [
                    {"learns": "1", "steps": [1, 1]},
                    {"learns": "2", "steps": [2, 2]},
                    {"learns": "predictions", "steps": [3, 3]},
                ],
            }
        },
        "left_out": {},
    }
    assert (there / "run" / "transfer.png").stat().st_size > 1000


def test_the_printed_report_has_a_row_per_layer_and_the_path_of_the_plot(there, tmp_path):
    picture = tmp_path / "new" / "x.svg"
    shown = text(run(Config("transfer", str(there / "run"), out=str(picture))))
    assert "│ 2     │ 2.5 │ 0.5  │" in shown
    assert f"wrote {picture}" in shown
    assert picture.is_file()


def test_attention_metrics_cover_all_layers_and_the_plot_the_selected_ones(there, tmp_path, capsys):
    line = ["analyse", "attention", str(there / "mixed"), "--teacher", str(there / "teacher"), "--text", "w1 w2"]
    assert cli.main([*line, "--layers", "2", "--out", str(tmp_path / "two.png"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    [text] = report["analyses"]["attention"]["texts"]
    assert text["tokens"] == ["[CLS]", "w1", "w2", "[SEP]"]
    assert [len(heads) for heads in text["kl"]] == [2, 2, 2]
    assert report["metrics"] == {f"kl_{n}": pytest.approx(sum(text["kl"][n - 1]) / 2) for n in (1, 2, 3)}
    assert report["files"] == [str(tmp_path / "two.png")]
    assert (tmp_path / "two.png").stat().st_size > 1000


def test_the_attention_of_one_model_needs_no_teacher(there, tmp_path, capsys):
    line = ["analyse", "attention", str(there / "mixed"), "--text", "w1 w2", "--out", str(tmp_path / "one.png")]
    assert cli.main([*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    [text] = report["analyses"]["attention"]["texts"]
    assert text["tokens"] == ["[CLS]", "w1", "w2", "[SEP]"]
    assert [len(heads) for heads in text["entropy"]] == [2, 2, 2]
    assert report["metrics"] == {f"entropy_{n}": pytest.approx(sum(text["entropy"][n - 1]) / 2) for n in (1, 2, 3)}
    assert report["files"] == [str(tmp_path / f"one-{name}.png") for name in ("mean", "heads", "layers")]
    assert all((tmp_path / f"one-{name}.png").stat().st_size > 1000 for name in ("mean", "heads", "layers"))
    assert cli.main([*line, "--mean"]) == 0
    assert "entropy" in capsys.readouterr().out


def test_a_model_has_no_divergence_from_itself_and_the_default_page_is_in_the_working_directory(
    there, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    student = str(there / "student")
    report = run(Config("attention", student, teacher=student, text=("w1 w2 w3",), mean=True))
    assert report.metrics == {"kl_1": 0.0, "kl_2": 0.0, "kl_3": 0.0}
    assert (tmp_path / "attention.html").is_file()
    assert "│ 3     │ 0  │" in text(report)


def test_a_model_alone_runs_all_analyses_that_apply_and_names_the_others(there, tmp_path, capsys):
    line = ["analyse", str(there / "mixed"), "--text", "w1 w2 w3 w2 w4 w5", "--out", str(tmp_path / "report.html")]
    assert cli.main([*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [*report["analyses"]] == ["attention", "concentration", "heads", "dynamic-kernels", "depthwise-kernels"]
    assert report["left_out"]["fixed-kernels"].startswith("the model has no fixed kernels")
    assert {"entropy_1", "concentration", "locality", "redundancy", "kernel_overlap_w2"} <= report["metrics"].keys()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "the model has no fixed kernels" in page
    assert page.count("<figcaption>") == page.count("<svg") >= 8


def test_statistics_cover_the_texts_of_a_file_up_to_a_maximum(there, tmp_path, capsys):
    data = tmp_path / "texts.csv"
    data.write_text("id,sentence\n" + "".join(f"{n},w1 w2 w3 w4 w5 w{n}\n" for n in range(1, 8)))
    line = ["analyse", "concentration", str(there / "student"), "--data", str(data), "--column", "sentence"]
    assert cli.main([*line, "--max-texts", "5", "--out", str(tmp_path / "c.json")]) == 0
    output = capsys.readouterr()
    assert "The statistics cover the first 5 texts of" in output.out
    assert "5/5 texts" in output.err
    found = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert found["analyses"]["concentration"]["model"]["texts"] == 5
    assert len(found["analyses"]["concentration"]["model"]["layers"]) == 3


def test_errors_of_the_data_name_the_options_of_the_command(there, tmp_path, capsys):
    (tmp_path / "my.csv").write_text("body\na film\n")
    (tmp_path / "my.txt").write_bytes(b"film \xff")
    for name, sentence in (
        ("my.csv", "has no column 'text', only body; set --column COLUMN\n"),
        ("my.txt", "is not UTF-8 (byte 0xff); convert it to UTF-8\n"),
    ):
        assert cli.main(["analyse", "concentration", str(there / "student"), "--data", str(tmp_path / name)]) == 1
        assert capsys.readouterr().err.endswith(sentence)


def test_a_json_file_that_is_not_a_report_is_not_replaced(there, capsys):
    config = there / "student" / "config.json"
    before = config.read_bytes()
    line = ["analyse", "heads", str(there / "student"), "--text", "w1 w2 w3", "--out", str(config)]
    assert cli.main(line) == 1
    assert "exists and is not a report of `lightbert analyse`; choose another --out" in capsys.readouterr().err
    assert config.read_bytes() == before


def test_texts_that_are_too_short_for_a_concentration_raise_an_error(there, capsys):
    assert cli.main(["analyse", "concentration", str(there / "student"), "--text", "w1"]) == 1
    assert "requires texts of more than 5 tokens; give longer texts" in capsys.readouterr().err


def test_another_model_is_compared_of_any_shape(there, tmp_path, capsys):
    line = ["analyse", "heads", str(there / "student"), "--compare", str(there / "shallow"), "--text", "w1 w2 w3"]
    assert cli.main([*line, "--out", str(tmp_path / "both"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"locality", "other_locality"} <= report["metrics"].keys()
    assert [*report["analyses"]["heads"]] == ["student", "shallow"]
    assert {*report["files"]} == {str(path) for path in (tmp_path / "both").glob("[!.]*")}


def test_all_analyses_of_a_student_with_its_teacher(there, tmp_path, capsys):
    line = ["analyse", str(there / "mixed"), "--teacher", str(there / "teacher"), "--text", "w1 w2 w3 w2 w4 w5"]
    assert cli.main([*line, "--out", str(tmp_path / "pair.json"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    expected = {"kl_1", "concentration", "teacher_concentration", "locality", "teacher_locality"}
    assert expected <= report["metrics"].keys()
    assert report["files"] == [str(tmp_path / "pair.json")]


def test_numbers_need_no_matplotlib(there, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    line = ["analyse", "heads", str(there / "student"), "--text", "w1 w2 w3", "--out", str(tmp_path / "x.json")]
    assert cli.main(line) == 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("transfr run", "unknown analysis 'transfr'; did you mean 'transfer'?"),
        ("transfer", "the analysis 'transfer' requires a model or a run: lightbert analyse transfer RUN"),
        ("nowhere", "model 'nowhere' not found"),
        ("student", "the analysis 'attention' requires a text; add --text TEXT"),
        ("concentration student", "the analysis 'concentration' requires texts; add --data FILE"),
        ("dynamic-kernels student --text w1", "the model has no dynamic kernels"),
        ("heads student --data nothing.txt", "'nothing.txt' not found"),
        ("heads student --text w1 --max-texts 0", "--max-texts must be >= 1, got 0"),
        ("heads student --text w1 --length 2", "--length must be >= 3, got 2"),
        ("attention student --text w1 --out x.doc", "unknown picture format 'doc'"),
        ("attention student --text w1 --teacher teacher --compare teacher", "can't be combined"),
        ("transfer nowhere", "'nowhere/metrics.jsonl' not found; give the folder of a run"),
        ("transfer pretrained", "'pretrained/metrics.jsonl' has no layer losses"),
        (
            "transfer run --out run/metrics.jsonl/x.png",
            "must be a folder, but is a file; choose another name",
        ),
        ("attention student --text w1 --layers 4", "layers must be in [1, 3], got 4"),
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
    assert not list(there.glob("*.html"))


def test_without_matplotlib_a_page_raises_the_error_before_the_work(there, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["analyse", "heads", str(there / "student"), "--text", "w1 w2 w3"]) == 1
    error = capsys.readouterr().err
    assert "pip install 'lightbert[plots]'" in error
    assert "reading" not in error
