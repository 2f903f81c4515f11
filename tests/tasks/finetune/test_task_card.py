"""The model card of a fine-tuned model."""

import re
from pathlib import Path

import pytest
from tiny_tasks import SETTINGS, write_model, write_reviews

import lightbert
from extras import needs_metrics
from lightbert.cli import main

pytestmark = needs_metrics


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("start")
    model, train = write_model(where / "model"), write_reviews(where / "train.csv", labels=("a|b", "good"))
    own = [f"model={model}", f"data.train={train}", "data.text=body", "data.label=topic", "steps=2"]
    assert main(["finetune", "classify", *SETTINGS, *own, "seeds=[0, 1]", f"out={where / 'out'}"]) == 0
    return where / "out"


def test_every_run_and_the_best_one_have_a_card(run: Path) -> None:
    cards = {path.parent.parent.name: path.read_text() for path in run.rglob("README.md")}
    assert cards.keys() == {"out", "seed-0", "seed-1"}
    assert cards["out"] in (cards["seed-0"], cards["seed-1"])


def test_the_card_names_data_labels_command_and_metrics(run: Path) -> None:
    card = (run / "final" / "README.md").read_text()
    assert "# ConvBERT fine-tuned for single-label classification" in card
    assert "fine-tuned from model for" in card
    assert "| training file | train.csv |" in card
    assert r"| labels | a\|b, good |" in card
    assert re.search(r"\| accuracy \| [01]\.\d{4} \|", card)
    assert re.search(r"lightbert finetune classify .*data\.train=train\.csv .*'seeds=\[0, 1\]' out=out", card)
    assert str(run.parent) not in card


def test_the_front_matter_has_the_evaluation_results(run: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard.load(run / "final" / "README.md")
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.tags == ["lightbert", "convbert", "classify"]
    found = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert found.keys() == {"accuracy", "f1", "mcc"}
    assert {result.dataset_name for result in card.data.eval_results} == {"train.csv"}


def test_the_python_of_the_card_predicts(run: Path) -> None:
    first, *_ = re.findall(r"```python\n(.*?)```", (run / "final" / "README.md").read_text(), re.DOTALL)
    names: dict[str, lightbert.tasks.predict.torch_runtime.TextModel] = {}
    exec(first.replace('"FOLDER"', repr(str(run / "final"))), names)
    assert names["model"].predict("good")["label"] in ("a|b", "good")
