"""A new kind of task, added by the steps of CONTRIBUTING.md, touches two files, and its commands run to the end."""

import json

from source_copy import SourceCopy
from tiny_tasks import SETTINGS, write_model, write_reviews

# Step 1: a class with its names, its head, and what it makes of the outputs.
KIND = '''"""Ordered grades: the prediction is the grade nearest to the expected one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.features import Features
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.kinds.kind import Finding, LabelledKind, Outputs, Prediction, rates_finding, softmax


@dataclass(frozen=True)
class Grades(LabelledKind[Example]):
    """Labels from the lowest to the highest grade."""

    name: ClassVar[str] = "grades"
    title: ClassVar[str] = "ordered grades"
    heads: ClassVar[tuple[str, ...]] = ("classify",)

    @property
    def metric(self) -> str:
        """The mean distance in grades, as a fraction of the largest one, subtracted from 1."""
        return "closeness"

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode examples; the target of a row is the index of its grade."""
        targets = np.array([self.labels.index(example.label) for example in examples if example.label], np.int64)
        return text_features(examples, encoder, targets if len(targets) == len(examples) else None)

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """The grade nearest to the expected one."""
        expected = [softmax(row) @ np.arange(len(self.labels)) for (row,) in outputs]
        return [{"grade": self.labels[round(grade)], "expected": float(grade)} for grade in expected]

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """The closeness of the grades."""
        pairs = zip(examples, predictions, strict=True)
        distances = [abs(self.labels.index(a.label) - self.labels.index(b["grade"])) for a, b in pairs]
        return {"closeness": 1 - float(np.mean(distances)) / (len(self.labels) - 1)}

    def baseline(self, train: Features, examples: Sequence[Example]) -> list[Prediction]:
        """The median grade of the training data."""
        return [{"grade": self.labels[int(np.median(train.targets))]}] * len(examples)

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Precision and recall of each grade."""
        pairs = [(a.label, b["grade"]) for a, b in zip(examples, predictions, strict=True)]
        counts = {
            name: [pairs.count((name, name)), sum(b == name for _, b in pairs), sum(a == name for a, _ in pairs)]
            for name in self.labels
        }
        return [rates_finding(counts)]
'''
# Step 2: its lines in the table of kinds.
LINES = {
    '    "tokens": ': '    "grades": "lightbert.tasks.kinds.grades:Grades",\n',
    '"tokens"]': '"grades", ',
}
COMMANDS = """
import sys
from lightbert.cli import main
model, data, out, *settings = sys.argv[1:]
keys = ["data.kind=grades", "data.text=body", "data.label=topic", "data.train=" + data]
assert main(["finetune", "classify", "model=" + model, "out=" + out, *keys, *settings]) == 0
final = out + "/final"
assert main(["evaluate", final, "--data", data, "--split", "dev", "--json"]) == 0
assert main(["predict", final, "the film was good"]) == 0
"""


def test_a_new_kind_touches_two_files_and_is_trained_evaluated_and_predicted(tmp_path):
    copy, table, kind = SourceCopy(tmp_path), "tasks/kinds/__init__.py", "tasks/kinds/grades.py"
    (copy.package / kind).write_text(KIND)
    for before, text in LINES.items():
        copy.insert(table, before, text)
    assert copy.changed() == {table, kind}

    data, out = write_reviews(tmp_path / "reviews.csv"), tmp_path / "run"
    done = copy.run(COMMANDS, write_model(tmp_path / "model"), data, out, *SETTINGS)
    assert "own: grades, 2 labels (bad, good)" in done.stderr
    card = (out / "final" / "README.md").read_text()
    assert "fine-tuned for ordered grades" in card
    assert "| closeness |" in card
    config = json.loads((out / "final" / "config.json").read_text())
    assert config["task"]["kind"] == "grades"
    assert '"closeness": ' in done.stdout
    assert json.loads(done.stdout.strip().splitlines()[-1])["grade"] in ("bad", "good")
