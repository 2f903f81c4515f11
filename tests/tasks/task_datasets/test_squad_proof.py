"""The real dev sets: gold answers score 100, and perfect outputs decode to them through windows."""

import json
from pathlib import Path

import pytest
from questions import perfect_outputs

from lightbert.data.tokenizer import train
from lightbert.tasks.datasets.squad import score, squad_task
from lightbert.tasks.example import TextEncoder

SQUAD = Path(__file__).parents[4] / "shared" / "data" / "squad"

pytestmark = [pytest.mark.prove, pytest.mark.skipif(not SQUAD.is_dir(), reason="SQuAD is not there")]


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_gold_answers_score_a_hundred(tmp_path, version):
    task = squad_task(SQUAD, version=version)
    gold = {question.id: question.answers[0].text if question.answers else "" for question in task.examples("dev")}
    predictions = tmp_path / "predictions.json"
    predictions.write_text(json.dumps(gold), encoding="utf-8")
    found = score(next(SQUAD.glob(f"*dev-v{version}.json*")), predictions)
    assert found["exact_match" if version == "1.1" else "exact"] == found["f1"] == 100.0


@pytest.mark.parametrize("head", ["span", "beam"])
@pytest.mark.parametrize(("version", "length"), [("1.1", 384), ("1.1", 160), ("2.0", 384)])
def test_perfect_logits_reach_99_percent(version, length, head):
    task = squad_task(SQUAD, version=version)
    kind = task.kind.with_settings(head=head, stride=64 if length == 160 else 128)
    questions = task.examples("dev")
    tokenizer = train([question.context for question in questions[::25]], "wordpiece", 8000)
    features = kind.features(questions, TextEncoder(tokenizer, length))
    predictions = kind.predictions(questions, features, perfect_outputs(features, head))
    metrics = kind.metrics(questions, predictions)
    assert metrics["exact_match" if version == "1.1" else "exact"] >= 0.99
    for question, prediction in zip(questions, predictions, strict=True):
        if prediction["answer"]:
            assert prediction["answer"] == question.context[prediction["start"] : prediction["end"]]
