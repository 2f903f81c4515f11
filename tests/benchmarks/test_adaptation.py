"""The benchmark of the adaptation, with processes that are faked: each writes the result of its command."""

import json

import pytest

from benchmarks import adaptation, runs
from benchmarks.adaptation import (
    ADAPTED,
    BUNDLED,
    FINETUNING,
    Outcome,
    Protocol,
    SectionTask,
    markdown,
    mean_and_error,
    run_all,
    simple_classifiers,
)
from lightbert.config import assignments, from_mapping, override
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.finetune.plan import plan
from lightbert.train.settings import Recipe

ROWS = [("The value of the sum.", "returns"), ("The terms of the sum.", "parameters"), ("A term.", "parameters")]
TASK = SectionTask({"train": ROWS, "dev": ROWS, "test": ROWS}, [["A function of two arguments."]])
LOSSES = {"mlm_loss": 3.0, "rtd_loss": 0.2, "rtd_accuracy": 0.9}


class Processes:
    """Fakes of processes: adapted weights score 0.1 more, the seed adds a hundredth."""

    def __init__(self, monkeypatch, *, fail=""):
        self.names: list[str] = []
        self.fail = fail
        monkeypatch.setattr(runs, "run_command", self.run)

    def run(self, command, log, *_):
        name = log.stem
        self.names.append(name)
        if name == self.fail:
            return 1
        seed = int(name.removesuffix("-test")[-1]) if "-" in name else 0
        accuracy = 0.5 + 0.1 * name.startswith(ADAPTED) + 0.01 * seed
        result = {"metrics": {"accuracy": accuracy}, "held_out": LOSSES, "step": 7}
        folder = log.with_name(name.removesuffix("-test"))
        if name.endswith("-test"):
            folder /= "test"
        folder.mkdir(parents=True, exist_ok=True)
        found = {"A term.": name.startswith(ADAPTED), "The value of the sum.": True}
        rows = ({"text": text, "true": "a", "label": "a" if correct else "b"} for text, correct in found.items())
        (folder / "predictions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (folder / ("report.json" if name.endswith("-test") else "result.json")).write_text(json.dumps(result))
        return 0


def protocol(out):
    return Protocol(out, seeds=(0, 1), jobs=1, adaptation=("max_minutes=1",))


def run(out):
    return run_all(TASK, protocol(out), lambda: False)


def test_both_weights_are_fine_tuned_and_tested_with_every_seed(tmp_path, monkeypatch):
    processes = Processes(monkeypatch)
    outcome = run(tmp_path)
    assert processes.names[:3] == ["data", "bundled", "adapted"]
    assert sorted(processes.names[3:]) == sorted(
        f"{weights}-{seed}{test}" for weights in (BUNDLED, ADAPTED) for seed in (0, 1) for test in ("", "-test")
    )
    assert outcome is not None
    assert outcome.test == {BUNDLED: (0.5, 0.51), ADAPTED: (0.6, 0.61)}
    assert outcome.gains == pytest.approx((0.1, 0.1))
    assert outcome.steps == 7
    # One of two sentences gains 1, the other one 0.
    assert outcome.sentence_error == pytest.approx(0.5)


def test_what_is_finished_is_not_run_again(tmp_path, monkeypatch):
    processes = Processes(monkeypatch, fail="adapted-1")
    assert run(tmp_path) is None
    assert "adapted-1-test" not in processes.names
    again = Processes(monkeypatch)
    assert run(tmp_path) is not None
    assert again.names == ["adapted-1", "adapted-1-test"]


def test_nothing_is_fine_tuned_without_the_adaptation(tmp_path, monkeypatch):
    processes = Processes(monkeypatch, fail="adapted")
    assert run(tmp_path) is None
    assert processes.names == ["data", "bundled", "adapted"]


def test_the_commands_are_valid_and_differ_in_the_weights_only(tmp_path):
    for each in protocol(tmp_path).pretraining()[1:]:
        _, verb, recipe, *words = each.command
        assert (verb, recipe) == ("pretrain", "adapt")
        from_mapping(Recipe, override(read(recipe), assignments(words)))
    before, after = (protocol(tmp_path).finetuning_of(weights, 1)[0].command for weights in (BUNDLED, ADAPTED))
    assert plan(read(before[2]), assignments(before[3:]))
    different = {word.partition("=")[0] for word in set(before) ^ set(after)}
    assert different == {"model", "out"}
    assert set(FINETUNING) < set(before)


def test_a_mean_has_the_error_of_its_values():
    assert mean_and_error((0.1, 0.3)) == pytest.approx((0.2, 0.1))
    assert mean_and_error((0.1,)) == (0.1, 0.0)


@pytest.mark.parametrize(
    ("after", "words"), [((0.6, 0.62), "the change is clear"), ((0.5, 0.52), "the change is not clear")]
)
def test_the_page_says_whether_the_gain_is_clear(tmp_path, after, words):
    scores = {BUNDLED: (0.5, 0.51), ADAPTED: after}
    outcome = Outcome({BUNDLED: LOSSES, ADAPTED: LOSSES}, 7, scores, scores, 0.02)
    page = markdown(
        TASK, protocol(tmp_path), outcome, simple_classifiers(TASK), command="the command", origin="Commits abc."
    )
    assert words in page
    assert "Written by `the command`; don't edit. Commits abc." in page
    assert str(tmp_path) not in page
    assert "| the most frequent section | test | | | 66.7 |" in page


def test_the_command_writes_the_page(tmp_path, monkeypatch):
    Processes(monkeypatch)
    monkeypatch.setattr(adaptation, "read_task", lambda: TASK)
    monkeypatch.setattr(adaptation, "versions", lambda *names: dict.fromkeys(names, "1.0"))
    adaptation.main(["--out", str(tmp_path), "--seeds", "2", "steps=3"])
    page = (tmp_path / "adapt.md").read_text(encoding="utf-8")
    assert f"`python -m benchmarks.adaptation --out {tmp_path.name} --seeds 2 steps=3`" in page
    assert "scikit-learn 1.0" in page


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(adaptation, "versions", lambda *names: dict.fromkeys(names, "") | {"numpy": "2.0"})
    with pytest.raises(InputError, match="install matplotlib networkx pandas"):
        adaptation.main(["--out", str(tmp_path)])


def test_wrong_input_is_found_before_anything_runs(tmp_path):
    for words, message in (
        (["--seeds", "0"], "--seeds and --jobs must be >= 1, got 0"),
        (["--page", "missing/adapt.md"], "--page must be a file in an existing folder, got 'missing/adapt.md'"),
        (["stepz=3"], "unknown key 'stepz'"),
        (["--finetuning", "lr=fast"], "lr must be a number, got 'fast'"),
    ):
        with pytest.raises(InputError, match=message):
            adaptation.main(["--out", str(tmp_path / "out"), *words])
        assert not (tmp_path / "out").exists()
