"""Several runs in one command: summary table, and resuming an interrupted grid."""

import json
from pathlib import Path

import pytest
from tiny_tasks import finetune, results, write_model, write_reviews

import lightbert
from extras import needs_metrics
from lightbert.errors import InputError
from lightbert.tasks.finetune.dataset import _load_data as load_data_cache
from lightbert.tasks.finetune.plan import PlannedRun
from lightbert.tasks.finetune.results import Result, best_settings, glue_scores, settings_of

pytestmark = needs_metrics

RECIPE = "classify"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    where = tmp_path_factory.mktemp("start")
    model, train = write_model(where / "model"), write_reviews(where / "train.csv", rows=24)
    columns = ("data.text=body", "data.label=topic", "data.hold_out=0.3", "epochs=1")
    return (f"model={model}", f"data.train={train}", *columns, "grid.lr=[1e-3, 1e-2]", "seeds=[0, 1]")


def test_an_interrupted_grid_resumes_with_the_interrupted_run(start, tmp_path: Path):
    whole = finetune(RECIPE, *start, f"out={tmp_path / 'whole'}")
    steps = whole[0][1].step
    parts = finetune(RECIPE, *start, f"out={tmp_path / 'parts'}", stop_after=steps + 2)
    assert [result.finished for _, result in parts] == [True, False]
    before = (tmp_path / "parts" / "runs" / "lr-0.001_seed-0" / "result.json").stat().st_mtime_ns
    done = finetune(RECIPE, *start, f"out={tmp_path / 'parts'}")
    assert (tmp_path / "parts" / "runs" / "lr-0.001_seed-0" / "result.json").stat().st_mtime_ns == before
    assert [result.metrics for _, result in done] == [result.metrics for _, result in whole]
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_the_best_run_is_copied_and_checkpoints_are_deleted(start, tmp_path: Path):
    done = finetune(RECIPE, *start, f"out={tmp_path}")
    [best] = best_settings(settings_of(done))
    kept = Path(best.best[0].recipe.out) / "final" / "model.safetensors"
    assert (tmp_path / "final" / "model.safetensors").read_bytes() == kept.read_bytes()
    assert lightbert.load(tmp_path / "final").labels == ("bad", "good")
    assert not list(tmp_path.rglob("step-*"))
    table = json.loads((tmp_path / "runs.json").read_text())
    assert [(row["settings"], len(row["runs"])) for row in table] == [({"lr": 1e-3}, 2), ({"lr": 1e-2}, 2)]


@pytest.fixture
def changing(start, tmp_path: Path) -> tuple[str, ...]:
    """A model, and data in files that may be changed."""
    train, dev = (write_reviews(tmp_path / f"{name}.csv", rows=20) for name in ("train", "dev"))
    columns = ("data.text=body", "data.label=topic")
    return (start[0], f"data.train={train}", f"data.dev={dev}", *columns, "steps=2", f"out={tmp_path / 'grid'}")


def change_data(folder: Path) -> None:
    """Rename a label."""
    for path in (folder / "train.csv", folder / "dev.csv"):
        path.write_text(path.read_text().replace(",bad", ",poor"))
    load_data_cache.cache_clear()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seeds", ["seeds=[0, 1, 2]", "seeds=[2, 0, 1]", "seeds=[1, 2]"])
def test_a_grid_is_not_extended_on_changed_data(changing, tmp_path: Path, seeds: str):
    finetune(RECIPE, *changing, "seeds=[0, 1]")
    before = contents(tmp_path / "grid" / "runs")
    change_data(tmp_path)
    with pytest.raises(
        InputError,
        match=r"the data of the run in '.*seed-[01]' has changed since the run was started, and the run in '.*seed-2' "
        r"would be compared with it; restore the data, or set out= to another folder",
    ):
        finetune(RECIPE, *changing, seeds)
    assert contents(tmp_path / "grid" / "runs") == before


def test_a_grid_is_not_resumed_on_changed_data(changing, tmp_path: Path):
    finetune(RECIPE, *changing, "seeds=[0, 1]", stop_after=3)
    before = contents(tmp_path / "grid" / "runs")
    change_data(tmp_path)
    with pytest.raises(InputError, match=r"the data of the run in '.*seed-0' has changed since the run was started"):
        finetune(RECIPE, *changing, "seeds=[0, 1]")
    assert contents(tmp_path / "grid" / "runs") == before


def test_data_that_change_while_a_grid_is_trained_are_an_error(changing, tmp_path: Path, monkeypatch):
    # The summary is written after each run.
    monkeypatch.setattr("lightbert.tasks.finetune.grid.write_atomic", lambda *_: change_data(tmp_path))
    with pytest.raises(InputError, match=r"the data of the run in '.*seed-0' has changed since the run was started"):
        finetune(RECIPE, *changing, "seeds=[0, 1]")


def test_finished_runs_on_different_data_are_not_summarized(changing, tmp_path: Path):
    finetune(RECIPE, *changing, "seeds=[0, 1]")
    change_data(tmp_path)
    finetune(RECIPE, *changing, "seeds=[2, 3]")
    with pytest.raises(
        InputError,
        match=r"the runs in '.*seed-0' and '.*seed-2' can't be compared, because the data changed between them; remove",
    ):
        finetune(RECIPE, *changing, "seeds=[0, 1, 2, 3]")


def test_a_finished_grid_is_summarized_without_its_data(changing, tmp_path: Path):
    done = finetune(RECIPE, *changing, "seeds=[0, 1]")
    change_data(tmp_path)
    assert finetune(RECIPE, *changing, "seeds=[0, 1]") == done


def test_runs_that_encode_the_data_differently_are_compared(changing):
    finetune(RECIPE, *changing, "grid.length=[8, 12]")
    assert len(finetune(RECIPE, *changing, "grid.length=[8, 12, 10]")) == 3


def test_a_run_of_an_earlier_version_without_a_hash_is_compared(changing, tmp_path: Path):
    finetune(RECIPE, *changing, "seeds=[0, 1]")
    for path in (tmp_path / "grid").rglob("recipe.json"):
        saved = json.loads(path.read_text())
        del saved["data_content"]
        path.write_text(json.dumps(saved))
    assert len(finetune(RECIPE, *changing, "seeds=[0, 1, 2]")) == 3


def planned(task: str, lr: float, seed: int, recipe=None) -> PlannedRun:
    return PlannedRun(task, (("lr", lr),), seed, recipe)


def result(metric: str, **metrics: float) -> Result:
    return Result(metrics, metric, step=1, best_step=-1, rows_per_second=1.0)


def test_the_lowest_error_is_the_best_run():
    errors = {1e-4: (0.3, 0.5), 1e-3: (0.2, 0.9)}
    runs = [(planned("stsb", lr, n), result("mse", mse=e)) for lr, both in errors.items() for n, e in enumerate(both)]
    [best] = best_settings(settings_of(runs))
    assert best.settings == "lr=0.0001"
    assert best.numbers("mse")["best"] == best.best[1].score == 0.3


def test_the_summary_has_median_mean_error_and_best_over_seeds():
    runs = [(planned("rte", 1e-4, seed), result("accuracy", accuracy=a)) for seed, a in enumerate((0.5, 0.7, 0.6, 0.8))]
    [setting] = settings_of(runs)
    # The standard deviation of 0.5, 0.7, 0.6, 0.8 is √(0.05 / 3) and its error half of that.
    expected = {"median": 0.65, "mean": 0.65, "error": (0.05 / 3) ** 0.5 / 2, "best": 0.8}
    assert setting.numbers("accuracy") == pytest.approx(expected)
    assert setting.best[0].seed == 3


def test_a_single_run_has_no_standard_error():
    [setting] = settings_of([(planned("rte", 1e-4, 0), result("accuracy", accuracy=0.5))])
    assert setting.numbers("accuracy")["error"] == 0.0


def test_the_best_setting_has_the_best_median_not_the_best_run():
    steady = [(planned("rte", 1e-4, seed), result("accuracy", accuracy=0.7)) for seed in range(3)]
    lucky = [(planned("rte", 3e-4, seed), result("accuracy", accuracy=a)) for seed, a in enumerate((0.5, 0.5, 0.9))]
    [best] = best_settings(settings_of([*steady, *lucky]))
    assert best.settings == "lr=0.0001"


def test_both_averages_are_computed_once_their_columns_are_complete():
    both, one = {"accuracy": 0.8, "f1": 0.9, "mcc": 0.5}, {"accuracy": 0.8, "mcc": 0.5}
    numbers = {
        **dict.fromkeys(("mrpc", "qqp"), both),
        **dict.fromkeys(("cola", "sst2", "qnli", "rte"), one),
        "stsb": {"pearson": 0.8, "spearman": 0.7},
        "mnli": {**one, "mismatched_accuracy": 0.6},
    }
    runs = [(planned(task, 1e-4, 0), result(next(iter(found)), **found)) for task, found in numbers.items()]
    convbert, composite = glue_scores(settings_of(runs))
    assert convbert.mean == pytest.approx((6 * 0.8 + 0.5 + 0.7) / 8)
    assert composite.mean == pytest.approx((0.5 + 0.8 + 0.6 + 0.85 + 0.8 + 0.85 + 0.8 + 0.8 + 0.75) / 9)
    convbert, _ = glue_scores(settings_of(runs[:-1]))
    assert convbert.mean is None
    assert "MNLI" in convbert.sentence()
