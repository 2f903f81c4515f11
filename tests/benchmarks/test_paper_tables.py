"""The papers' tables: rows are packaged recipes, results are read and described, and a tiny table runs end to end."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from glue_files import write_glue
from tiny_runs import write_corpus

from benchmarks import commands, paper_runs, papers
from benchmarks.pages import commit
from benchmarks.paper_report import markdown
from benchmarks.paper_runs import (
    PROTOCOL,
    TABLES,
    Arm,
    Outcome,
    Protocol,
    Table,
    finetuning_command,
    folder_of,
    pretraining_command,
    read_outcome,
)
from lightbert.config import assignments, from_mapping, override
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.finetune.plan import plan
from lightbert.train.settings import Recipe

LOW, HIGH = Arm("low", "tiny-rtd", 70.0), Arm("high", "tiny-mlm", 80.0)
PAPERS = [name for name, table in TABLES.items() if table.figures]
TINY = Table("Two rows", "Nobody Table 1", (LOW, HIGH))


def protocol(out, **changes):
    return Protocol(Path("data"), Path("glue"), out, task_seeds=(0, 1), tasks=("cola",), **changes)  # type: ignore[arg-type]


def write_results(out, arm, scores):
    folder = folder_of(arm, 0, protocol(out))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps({"held_out": {"mlm_loss": 3.5, "accuracy": 0.4}}))
    for seed, score in enumerate(scores):
        run = folder / "tasks" / str(seed) / "runs" / "cola"
        run.mkdir(parents=True)
        (run / "recipe.json").write_text(json.dumps({"task": "cola", "seed": seed}))
        (run / "result.json").write_text(json.dumps({"metric": "mcc", "metrics": {"mcc": score, "accuracy": 0.9}}))


def test_every_row_is_a_recipe_that_takes_the_common_protocol():
    for name in PAPERS:
        for arm in TABLES[name].arms:
            words = pretraining_command(arm, 0, protocol(Path("out")))
            recipe = from_mapping(Recipe, override(read(words[2]), assignments(words[3:])))
            assert recipe.length == 128
            assert (recipe.lr, recipe.examples, recipe.schedule.kind) == (5e-4, "segments", "linear")
            assert not recipe.phases


def test_rows_of_a_table_differ_in_the_model_only():
    for name in PAPERS:
        mappings = []
        for arm in TABLES[name].arms:
            mapping = override(read(arm.recipe), assignments(PROTOCOL))
            mappings.append({key: value for key, value in mapping.items() if key not in ("model", "change", "data")})
        assert all(mapping == {**mappings[0], **_batch(mapping)} for mapping in mappings)


def _batch(mapping):
    """What the command line sets for all rows."""
    return {key: mapping[key] for key in ("batch", "steps") if key in mapping}


def test_the_command_for_fine_tuning_plans_every_task_and_seed():
    for name in TABLES:
        table = TABLES[name]
        whole = Protocol(Path("data"), Path("glue"), Path("out"), finetuning=("per_task.stsb.epochs=4",))
        for seed in whole.task_seeds:
            words = finetuning_command(table.arms[0], 0, seed, whole)
            planned = plan(read(words[2]), assignments(words[3:]))
            assert {(run.task, run.seed) for run in planned.runs} == {(task, seed) for task in ("cola", "mrpc", "stsb")}
            assert {run.recipe.model for run in planned.runs} == {f"{Path('out', table.arms[0].recipe)}-0/final"}
            assert {run.recipe.epochs for run in planned.runs if run.task == "stsb"} == {4}
            assert {run.recipe.head.dropout for run in planned.runs} == {0.0}


def test_a_finished_row_has_its_scores_by_the_metric_of_the_task(tmp_path):
    write_results(tmp_path, LOW, [0.25, 0.75])
    outcome = read_outcome(LOW, 0, protocol(tmp_path))
    assert outcome == Outcome(LOW, 0, {"mlm_loss": 3.5, "accuracy": 0.4}, {"cola": (0.25, 0.75)})
    assert outcome.mean == 50.0


def test_a_row_without_all_seeds_is_not_finished(tmp_path):
    write_results(tmp_path, LOW, [0.25])
    assert read_outcome(LOW, 0, protocol(tmp_path)) is None
    assert read_outcome(HIGH, 0, protocol(tmp_path)) is None


def test_the_page_has_medians_ranges_commands_and_both_orders():
    low, high = (
        Outcome(arm, 0, {"mlm_loss": 3.5}, {"cola": scores}, "abc1234")
        for arm, scores in ((LOW, (0.5, 0.7)), (HIGH, (0.4, 0.4)))
    )
    page = markdown("two", TINY, protocol(Path("/home/me/out")), [low, high], "two.svg", " on a laptop")
    assert "| low | `tiny-rtd` | abc1234 | 0 | 3.5000 | 60.0 (50.0–70.0) | 60.0 | 70.0 |" in page
    assert "# low, seed 0, at commit abc1234\n" in page
    assert "/home" not in page
    assert "plateau" not in page
    assert "From lowest to highest here: high, low. In the paper: low, high." in page
    assert "`python -m benchmarks.papers two` on a laptop" in page
    assert "lightbert pretrain tiny-rtd" in page
    assert "The paper has the same order." in markdown("two", TINY, protocol(Path("out")), [high], "")


def test_the_page_names_rows_that_are_not_finished():
    outcomes = [Outcome(arm, 0, {"mlm_loss": 3.5}, {"cola": (0.5,)}) for arm in TINY.arms]
    chosen = replace(protocol(Path("out")), seeds=(0, 1))
    assert "Not finished: low (seed 1), high (seed 1)." in markdown("two", TINY, chosen, outcomes, "")
    assert "Not finished: high (seed 0)." in markdown("two", TINY, replace(chosen, seeds=(0,)), outcomes[:1], "")
    assert "Not finished" not in markdown("two", TINY, replace(chosen, seeds=(0,)), outcomes, "")


def test_the_page_says_how_much_was_read_with_how_many_seeds():
    outcome = Outcome(LOW, 0, {"mlm_loss": 3.5}, {"cola": (0.5,)})
    short = replace(protocol(Path("out"), steps=1000, batch=100, overrides=("length=10",)), task_seeds=(0,))
    page = markdown("two", TINY, short, [outcome], "")
    assert "pre-trained on 1.0 million tokens (1,000 steps of 100 × 10) and fine-tuned with 1 seed." in page
    page = markdown("two", TINY, replace(short, overrides=(), task_seeds=(0, 1)), [outcome], "")
    assert "12.8 million tokens (1,000 steps of 100 × 128) and fine-tuned with 2 seeds." in page


def test_a_row_that_hardly_learned_is_named():
    for held_out, learned in (
        ({"rtd_accuracy": 0.8732, "replaced": 0.1308}, False),
        ({"rtd_accuracy": 0.9027, "replaced": 0.117}, True),
        ({"mlm_accuracy": 0.14}, False),
        ({"mlm_accuracy": 0.3}, True),
    ):
        page = markdown("two", TINY, protocol(Path("out")), [Outcome(LOW, 0, held_out, {"cola": (0.5, 0.7)})], "")
        assert ("low (seed 0) has hardly left the plateau" in page) is not learned


def test_a_row_on_the_plateau_is_named_as_soon_as_it_is_pretrained(tmp_path, monkeypatch, capsys):
    def run(command, log, *_):
        if command[1] == "pretrain":
            folder = tmp_path / f"{command[2]}-0"
            folder.mkdir()
            accuracy = {"tiny-rtd": 0.875, "tiny-mlm": 0.895}[command[2]]
            (folder / "result.json").write_text(json.dumps({"held_out": {"rtd_accuracy": accuracy, "replaced": 0.13}}))
        return 0

    monkeypatch.setattr(paper_runs, "run_command", run)
    paper_runs.run_table(TINY, protocol(tmp_path))
    named = [line for line in capsys.readouterr().err.splitlines() if "plateau" in line]
    assert named == ["low, seed 0: has hardly left the plateau; try another lr= or more steps"]


def test_finished_commands_are_not_started_again_unless_they_differ(tmp_path, monkeypatch):
    started = []

    def run(command, log, *_):
        started.append(command[1])
        return 0 if command[1] == "pretrain" else 1

    monkeypatch.setattr(paper_runs, "run_command", run)
    paper_runs.run_table(TINY, protocol(tmp_path))
    assert sorted(started) == ["finetune"] * 4 + ["pretrain"] * 2
    started.clear()
    paper_runs.run_table(TINY, protocol(tmp_path))
    assert started == ["finetune"] * 4
    started.clear()
    paper_runs.run_table(TINY, protocol(tmp_path, steps=7))
    assert started.count("pretrain") == 2


def test_results_of_other_settings_are_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_runs, "run_command", lambda command, *_: int("steps=7" in command))
    for arm in (LOW, HIGH):
        write_results(tmp_path, arm, [0.5, 0.5])
    assert len(paper_runs.run_table(TINY, protocol(tmp_path))) == 2
    assert not paper_runs.run_table(TINY, protocol(tmp_path, steps=7))


def test_a_command_that_continues_at_another_commit_records_both(tmp_path, monkeypatch):
    path = tmp_path / "row.json"
    for name in ("abc1234", "abc1234", "def5678"):
        monkeypatch.setattr(commands, "commit", lambda name=name: name)
        commands.begin(path, ["lightbert"])
    assert not commands.is_finished(path, ["lightbert"])
    commands.finish(path)
    found = commands.read(path)
    assert found is not None
    assert found.commits == ("abc1234", "def5678")
    assert commands.is_finished(path, ["lightbert"])
    assert not commands.is_finished(path, ["lightbert", "steps=7"])
    path.write_text("{")
    assert commands.read(path) is None


def test_rows_that_fail_are_named_and_the_others_are_returned(tmp_path, monkeypatch, capsys):
    def run(command, log, *_):
        if "tiny-mlm" in command:
            return 1
        if "seeds=[1]" in command:
            write_results(tmp_path, LOW, [0.5, 0.5])
        return 0

    monkeypatch.setattr(paper_runs, "run_command", run)
    outcomes = paper_runs.run_table(TINY, protocol(tmp_path))
    assert [outcome.arm for outcome in outcomes] == [LOW]
    assert outcomes[0].commit == commit()
    assert "high, seed 0: pretrain failed; see" in capsys.readouterr().err


@pytest.mark.prove
def test_a_tiny_table_runs_from_text_to_page_and_is_read_again(tmp_path, monkeypatch, capsys):
    one_row = Table("One row", "Nobody Table 1", (LOW,))
    monkeypatch.setitem(papers.TABLES, "convolutions", one_row)
    data, glue = write_corpus(tmp_path / "corpus") / "data", write_glue(tmp_path / "glue")
    words = ["convolutions", "--data", str(data), "--glue", str(glue), "--out", str(tmp_path / "out")]
    words += ["--steps", "2", "--batch", "2", "--tasks", "cola", "--task-seeds", "2"]
    papers.main([*words, "evaluate_batches=1", "length=32"])
    assert "1 of 1 rows" in capsys.readouterr().out
    page = (tmp_path / "out" / "convolutions.md").read_text()
    assert f"| low | `tiny-rtd` | {commit()} | 0 |" in page
    assert (tmp_path / "out" / "convolutions.svg").is_file()
    before = (tmp_path / "out" / "tiny-rtd-0" / "result.json").stat().st_mtime_ns
    papers.main([*words, "evaluate_batches=1", "length=32"])
    assert (tmp_path / "out" / "tiny-rtd-0" / "result.json").stat().st_mtime_ns == before


def test_a_table_that_is_not_finished_in_time_exits_with_75_and_names_the_logs(tmp_path, capsys):
    here = str(tmp_path)
    words = ["convolutions", "--data", here, "--glue", here, "--out", here, "--minutes", "1e-9"]
    with pytest.raises(SystemExit) as stopped:
        papers.main(words)
    assert stopped.value.code == 75
    assert f"4 of 4 rows are not finished; run the same command again to continue; the logs are in '{here}'" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "convolutions.md").exists()


def test_a_process_is_told_to_save_when_the_time_is_over(tmp_path, monkeypatch):
    (tmp_path / "patient.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n"
        "    pathlib.Path('saved').touch()\n"
        "    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    monkeypatch.chdir(tmp_path)
    environment = commands.environment(jobs=2)
    assert commands.run_command(["patient"], tmp_path / "log", Path("ready").exists, environment) == 75
    assert Path("saved").exists()
    assert (tmp_path / "log").read_text().startswith("$ patient")


def test_a_process_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    (tmp_path / "deaf.py").write_text(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "_GRACE", 0.01)
    environment = commands.environment(jobs=1)
    assert commands.run_command(["deaf"], tmp_path / "log", Path("ready").exists, environment) == -signal.SIGKILL


def test_the_cores_are_divided_among_the_jobs_unless_their_number_is_set(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert commands.environment(jobs=5)["OMP_NUM_THREADS"] == "3"
    assert commands.environment(jobs=32)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert commands.environment(jobs=5)["OMP_NUM_THREADS"] == "7"


def test_a_missing_folder_is_an_error_before_anything_is_trained(tmp_path):
    for option in ("--data", "--glue"):
        folders = {"--data": str(tmp_path), "--glue": str(tmp_path), option: "nowhere"}
        words = [word for pair in folders.items() for word in pair]
        with pytest.raises(InputError, match=f"{option} must be a folder, got 'nowhere'"):
            papers.main(["convolutions", *words, "--out", str(tmp_path / "out")])
        assert not (tmp_path / "out").exists()


def test_rows_are_chosen_by_their_recipes():
    table = TABLES["convolutions"]
    chosen = papers._rows(table, "convbert-small-rtd,bert-small-rtd")
    assert [arm.recipe for arm in chosen.arms] == ["bert-small-rtd", "convbert-small-rtd"]
    assert papers._rows(table, None) is table
    with pytest.raises(
        InputError, match="--rows must name rows of the table, got 'gpt'; its rows are bert-small-rtd, "
    ):
        papers._rows(table, "gpt")
