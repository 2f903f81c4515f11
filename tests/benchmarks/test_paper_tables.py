"""The papers' tables and that of settings: commands, results, pages. Processes are faked, except in the last test."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from glue_files import write_glue
from tiny_runs import train, write_corpus

from benchmarks import papers, runs
from benchmarks.pages import commit
from benchmarks.papers import PROTOCOL, TABLES, Arm, Outcome, Protocol, Table, draw, markdown, run_table
from extras import needs_plots
from lightbert.config import assignments, from_mapping, override, to_mapping
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.finetune.plan import plan
from lightbert.train.run_folder import flatten
from lightbert.train.settings import Recipe

LOW, HIGH = Arm("low", "tiny-rtd", 70.0), Arm("high", "tiny-mlm", 80.0)
TINY = Table("Two rows", "Nobody Table 1", (LOW, HIGH))
PAPERS = [table for table in TABLES.values() if table.figures]
SETTINGS = TABLES["settings"]
FIRST, *CHANGED = SETTINGS.arms
WHOLE = Protocol(Path("data"), Path("glue"), Path("out"), steps=4000, tasks=("cola",), task_seeds=(0, 1))


def setting(name):
    [arm] = [arm for arm in SETTINGS.arms if arm.name == f"convbert-small-rtd-{name}"]
    return arm


def recipe_of(arm, protocol=WHOLE):
    words = arm.runs(0, protocol)[0].command
    return from_mapping(Recipe, override(read(words[2]), assignments(words[3:])))


def values_of(arm):
    """All keys of the row's recipe, except the folder of the run."""
    return dict(flatten(to_mapping(replace(recipe_of(arm), out="out"))))


def outcome_of(arm, *scores, seed=0, **held_out):
    return Outcome(arm, seed, held_out or {"rtd_loss": 0.25}, {"cola": scores}, "abc1234")


def write_result(command, log, *_):
    """What a process leaves at its end; the score is that of its seed."""
    out = Path(command[-1].removeprefix("out="))
    result = {"held_out": {"mlm_loss": 3.5}}
    if command[1] == "finetune":
        seed = int(out.name)
        out = out / "runs" / "cola"
        result = {"metric": "mcc", "metrics": {"mcc": 0.25 + seed / 2, "accuracy": 0.9}}
    out.mkdir(parents=True)
    (out / "result.json").write_text(json.dumps(result))
    if command[1] == "finetune":
        (out / "recipe.json").write_text(json.dumps({"task": "cola", "seed": seed}))
    return 0


def test_every_row_is_a_recipe_that_takes_the_common_protocol():
    for table in PAPERS:
        for arm in table.arms:
            recipe = recipe_of(arm)
            assert (recipe.length, recipe.lr, recipe.examples, recipe.schedule.kind) == (
                128,
                5e-4,
                "segments",
                "linear",
            )
            assert not recipe.phases


def test_rows_of_a_papers_table_differ_in_the_model_only():
    for table in PAPERS:
        mappings = [override(read(arm.recipe), assignments(PROTOCOL)) for arm in table.arms]
        # The command line sets batch and steps for all rows.
        own = ("model", "change", "data", "batch", "steps")
        shared = [{key: value for key, value in mapping.items() if key not in own} for mapping in mappings]
        assert all(mapping == shared[0] for mapping in shared)


def test_a_row_of_settings_differs_from_the_first_in_one_setting_and_reads_as_many_tokens():
    assert FIRST.runs(0, WHOLE) == TABLES["convolutions"].arms[-1].runs(0, WHOLE)
    for arm in CHANGED:
        first, values = values_of(FIRST), values_of(arm)
        changed = {key for key in first | values if first.get(key) != values.get(key)}
        assert changed == ({"batch", "steps"} if arm.batch_factor != 1 else {arm.overrides[0].partition("=")[0]})
        assert values["batch"] * values["steps"] * values["length"] == 4000 * 256 * 128
    assert len({arm.label for arm in SETTINGS.arms}) == len({arm.name for arm in SETTINGS.arms}) == 16


def test_the_command_for_fine_tuning_plans_every_task_and_seed():
    protocol = Protocol(Path("data"), Path("glue"), Path("out"), finetuning=("per_task.stsb.epochs=4",))
    for table in TABLES.values():
        for seed, run in enumerate(table.arms[0].runs(0, protocol)[1:]):
            planned = plan(read(run.command[2]), assignments(run.command[3:]))
            assert {(run.task, run.seed) for run in planned.runs} == {(task, seed) for task in ("cola", "mrpc", "stsb")}
            assert {run.recipe.model for run in planned.runs} == {f"out/{table.arms[0].recipe}-0/final"}
            assert {run.recipe.epochs for run in planned.runs if run.task == "stsb"} == {4}
            assert {run.recipe.head.dropout for run in planned.runs} == {0.0}


def test_rows_are_chosen_by_their_names():
    chosen = SETTINGS.choose("convbert-small-rtd-lr-1e-3,convbert-small-rtd,convbert-small-rtd-batch-x2")
    assert chosen.arms == (FIRST, setting("lr-1e-3"), setting("batch-x2"))
    assert SETTINGS.choose(None) is SETTINGS
    with pytest.raises(InputError, match="got 'lr-1e-3'; its rows are convbert-small-rtd, convbert-small-rtd-lr-1e-3"):
        SETTINGS.choose("lr-1e-3")


def test_wrong_input_is_found_before_anything_is_trained(tmp_path):
    here = str(tmp_path)
    for words, message in (
        (["--data", "nowhere"], "--data must be a folder, got 'nowhere'"),
        (["--glue", "nowhere"], "--glue must be a folder, got 'nowhere'"),
        (["compile=none", "lr=1"], "lr can't be set for all rows, because the row '.*-lr-1e-3' changes it"),
        (["batch=1"], "batch can't be set for all rows, because the row '.*-batch-x0.5' changes it"),
        (["--steps", "4001"], "must be even for the row '.*-batch-x2', got 4001 and 256; change"),
        (["--jobs", "0"], "--jobs must be >= 1, got 0"),
    ):
        with pytest.raises(InputError, match=message):
            papers.main(["settings", "--data", here, "--glue", here, "--out", str(tmp_path / "out"), *words])
        assert not (tmp_path / "out").exists()
    SETTINGS.choose("convbert-small-rtd").check(replace(WHOLE, overrides=("lr=1",)))


def test_finished_rows_are_returned_with_scores_by_the_metric_of_the_task_and_others_are_named(
    tmp_path, monkeypatch, capsys
):
    def run(command, log, *_):
        return 1 if command[2] == "tiny-mlm" else write_result(command, log)

    monkeypatch.setattr(runs, "run_command", run)
    outcomes = run_table(TINY, replace(WHOLE, out=tmp_path), 1, lambda: False)
    assert outcomes == [Outcome(LOW, 0, {"mlm_loss": 3.5}, {"cola": (0.25, 0.75)}, commit())]
    assert outcomes[0].mean == 50.0
    assert "high, seed 0: tiny-mlm-0, tiny-mlm-0-0, tiny-mlm-0-1 not finished" in capsys.readouterr().err
    # Results of other settings are not shown.
    assert not run_table(TINY, replace(WHOLE, out=tmp_path, steps=7), 1, lambda: True)


def test_a_table_that_is_not_finished_in_time_exits_with_75_and_names_the_logs(tmp_path, capsys):
    here = str(tmp_path)
    words = ["convolutions", "--data", here, "--glue", here, "--out", here, "--minutes", "1e-9"]
    with pytest.raises(SystemExit) as stopped:
        papers.main(words)
    assert stopped.value.code == 75
    message = f"4 of 4 rows are not finished; run the same command again to continue; the logs are in '{here}'"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "convolutions.md").exists()


def test_the_page_has_medians_ranges_commands_and_both_orders():
    low, high = outcome_of(LOW, 0.5, 0.7, mlm_loss=3.5), outcome_of(HIGH, 0.4, 0.4, mlm_loss=3.5)
    protocol = replace(WHOLE, out=Path("/home/me/out"))
    page = markdown("two", TINY, protocol, [low, high], "two.svg", " on a laptop")
    assert "| low | `tiny-rtd` | abc1234 | 0 | 3.5000 | 60.0 (50.0–70.0) | 60.0 | 70.0 |" in page
    assert "# low, seed 0, at commit abc1234\n" in page
    assert "lightbert pretrain tiny-rtd" in page
    assert "/home" not in page
    assert "plateau" not in page
    assert "Not finished" not in page
    assert "From lowest to highest here: high, low. In the paper: low, high." in page
    assert "`python -m benchmarks.papers two` on a laptop" in page
    assert "131.1 million tokens (4,000 steps of 256 × 128) and fine-tuned with 2 seeds." in page
    short = replace(protocol, steps=1000, batch=100, overrides=("length=10",), task_seeds=(0,), seeds=(0, 1))
    page = markdown("two", TINY, short, [high], "")
    assert "1.0 million tokens (1,000 steps of 100 × 10) and fine-tuned with 1 seed." in page
    assert "The paper has the same order." in page
    assert "Not finished: low (seed 0), low (seed 1), high (seed 1)." in page


def test_a_row_that_hardly_learned_is_named():
    for held_out, learned in (
        ({"rtd_accuracy": 0.8732, "replaced": 0.1308}, False),
        ({"rtd_accuracy": 0.9027, "replaced": 0.117}, True),
        ({"mlm_accuracy": 0.14}, False),
        ({"mlm_accuracy": 0.3}, True),
    ):
        page = markdown("two", TINY, WHOLE, [outcome_of(LOW, 0.5, 0.7, **held_out)], "")
        assert ("On the plateau at the start of training: low (seed 0)." in page) is not learned


def test_the_page_of_settings_has_differences_from_the_first_row_of_the_same_seed():
    rate, batch = setting("lr-1e-3"), setting("batch-x2")
    outcomes = [outcome_of(FIRST, 0.5, 0.5), outcome_of(FIRST, 0.6, 0.6, seed=1), outcome_of(rate, 0.55, 0.55)]
    outcomes += [outcome_of(rate, 0.525, 0.525, seed=1), outcome_of(batch, 0.49, 0.49)]
    page = markdown("settings", SETTINGS, WHOLE, outcomes, "settings.svg")
    assert "| mean | difference |\n" in page
    assert "| common settings | `convbert-small-rtd` | abc1234 | 0 | 0.2500 | 50.0 (50.0–50.0) | 50.0 |  |" in page
    assert "| `convbert-small-rtd lr=1e-3` | abc1234 | 0 | 0.2500 | 55.0 (55.0–55.0) | 55.0 | +5.0 |" in page
    assert "| 52.5 | -7.5 |" in page
    assert (
        "| `convbert-small-rtd steps=2000 batch=512` | abc1234 | 0 | 0.2500 | 49.0 (49.0–49.0) | 49.0 | -1.0 |" in page
    )
    assert "In the paper" not in page
    assert "| 49.0 |  |" in markdown("settings", SETTINGS, WHOLE, outcomes[4:], "")


@needs_plots
def test_the_picture_has_a_second_panel_only_for_a_papers_figures(tmp_path, monkeypatch):
    for name, panels in (("settings", 1), ("convolutions", 2)):
        figures = []
        monkeypatch.setattr("benchmarks.papers.write", lambda figure, _, figures=figures: figures.append(figure))
        table = TABLES[name]
        draw(table, [outcome_of(arm, 0.5) for arm in table.arms], tmp_path / "picture.svg")
        assert len(figures[0].axes) == panels


@pytest.mark.prove
def test_every_setting_trains_to_the_end_with_weights_of_its_own(tmp_path):
    data = write_corpus(tmp_path / "corpus") / "data"
    sizes = [f"change.{size}" for size in ("depth=1", "narrow=8", "width=32", "n_heads=4", "inner=32")]
    short = ("length=16", "device=cpu", "workers=0", "evaluate_batches=1")
    tiny = replace(WHOLE, data=data, out=tmp_path, steps=4, batch=4, overrides=(*sizes, *short))
    weights = set()
    for arm in SETTINGS.arms:
        recipe = recipe_of(arm, tiny)
        assert train(recipe).finished, arm.name
        weights.add(Path(recipe.out, "final", "model.safetensors").read_bytes())
    assert len(weights) == len(SETTINGS.arms)


@pytest.mark.prove
def test_a_tiny_table_runs_from_text_to_page_and_is_read_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(TABLES, "convolutions", Table("One row", "Nobody Table 1", (LOW,)))
    data, glue = write_corpus(tmp_path / "corpus") / "data", write_glue(tmp_path / "glue")
    words = ["convolutions", "--data", str(data), "--glue", str(glue), "--out", str(tmp_path / "out")]
    words += ["--steps", "2", "--batch", "2", "--tasks", "cola", "--task-seeds", "2", "evaluate_batches=1", "length=32"]
    papers.main(words)
    assert "1 of 1 rows" in capsys.readouterr().out
    page = (tmp_path / "out" / "convolutions.md").read_text()
    assert f"| low | `tiny-rtd` | {commit()} | 0 |" in page
    assert (tmp_path / "out" / "convolutions.svg").is_file()
    before = (tmp_path / "out" / "tiny-rtd-0" / "result.json").stat().st_mtime_ns
    papers.main(words)
    assert (tmp_path / "out" / "tiny-rtd-0" / "result.json").stat().st_mtime_ns == before
