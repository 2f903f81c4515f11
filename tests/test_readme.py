import re
import tomllib
from pathlib import Path

from tiny_tasks import write_model

import lightbert
from benchmarks.encoder_records import TASKS, load
from lightbert import bundled
from lightbert.models import preset
from lightbert.models.size import measure

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \|", README, re.MULTILINE)


def test_the_readme_is_short():
    assert len(README.splitlines()) < 150


def test_the_python_example_runs(tmp_path, monkeypatch):
    # A stand-in, because a checkout can lack the weights.
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "bundled")
    write_model(tmp_path / "bundled" / "convbert-small-en")
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(example, {})
    assert (tmp_path / "somewhere" / "model.safetensors").exists()


def test_the_parameters_in_the_table_are_those_of_the_model():
    for name, parameters in ROWS:
        assert f"{measure(preset(name)).parameters:,}" == parameters


def test_the_scores_in_the_tables_are_those_in_the_card_of_the_bundled_model():
    for model in ["convbert-small-en", "convbert-thin-en"]:
        name = tomllib.loads((ROOT / "lab" / f"{model}.toml").read_text(encoding="utf-8"))["scores"]
        measured = load(ROOT / "docs" / "results" / "small-encoder.json")
        records = measured.with_quoted(load(ROOT / "lab" / "small-encoder.toml")).check()
        scores = records.find(name)
        shown = [f"{100 * scores.tasks[task].median:.1f}" for task in (*TASKS, "squad") if task in scores.tasks]
        [row] = re.findall(rf"^\| `{model}`.* \| [\d.]+ billion \| (.*) \|$", README, re.MULTILINE)
        assert re.findall(r"[\d.]+", row) == shown
        distillation = (ROOT / "docs" / "distillation.md").read_text(encoding="utf-8")
        [row] = re.findall(rf"^\| `{model}` \| [\d.]+ M \| (.*) \|$", distillation, re.MULTILINE)
        assert row.split(" | ")[: len(TASKS) + 1] == [*shown[: len(TASKS)], f"{scores.mean:.1f}"]


def test_every_link_is_an_existing_file():
    for page in ("README.md", "SECURITY.md", "llms.txt"):
        targets = re.findall(r"\]\(([\w./-]+)\)", (ROOT / page).read_text(encoding="utf-8"))
        assert targets
        assert not [target for target in targets if not (ROOT / target).exists()]


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {lightbert.__version__}\n" in citation


def test_the_demo_of_make_ends_with_fine_tuning():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]
    assert "lightbert demo --finetune" in recipe
