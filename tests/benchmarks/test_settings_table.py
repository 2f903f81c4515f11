"""The table of settings: every row changes one thing, reads as many tokens, and is compared with the first row."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import train, write_corpus

from benchmarks import papers
from benchmarks.paper_report import draw, markdown
from benchmarks.paper_runs import (
    TABLES,
    Outcome,
    Protocol,
    check_rows,
    finetuning_command,
    folder_of,
    pretraining_command,
)
from extras import needs_plots
from lightbert.config import assignments, from_mapping, override, to_mapping
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.train.run_folder import flatten
from lightbert.train.settings import Recipe

TABLE = TABLES["settings"]
FIRST, *CHANGED = TABLE.arms
SIZES = ("depth=1", "narrow=8", "width=32", "n_heads=4", "inner=32")
SHORT = Protocol(Path("data"), Path("glue"), Path("out"), steps=4000, tasks=("cola",), task_seeds=(0, 1))


def row(name):
    [arm] = [arm for arm in TABLE.arms if arm.name == f"convbert-small-rtd-{name}"]
    return arm


def recipe_of(arm, protocol=SHORT):
    words = pretraining_command(arm, 0, protocol)
    return from_mapping(Recipe, override(read(words[2]), assignments(words[3:])))


def values_of(arm):
    """All keys of the row's recipe, except the folder of the run."""
    return dict(flatten(to_mapping(replace(recipe_of(arm), out="out"))))


def outcome_of(arm, score, seed=0):
    return Outcome(arm, seed, {"rtd_loss": 0.25}, {"cola": (score, score)}, "abc1234")


def test_the_first_row_is_trained_once_for_this_table_and_the_papers():
    convolutions = {arm.recipe: arm for arm in TABLES["convolutions"].arms}
    assert pretraining_command(FIRST, 0, SHORT) == pretraining_command(convolutions[FIRST.recipe], 0, SHORT)
    assert folder_of(FIRST, 0, SHORT) == Path("out/convbert-small-rtd-0")


def test_a_row_differs_from_the_first_in_one_setting_and_reads_as_many_tokens():
    for arm in CHANGED:
        first, values = values_of(FIRST), values_of(arm)
        changed = {key for key in first | values if first.get(key) != values.get(key)}
        assert changed == ({"batch", "steps"} if arm.batch_factor != 1 else {arm.overrides[0].partition("=")[0]})
        assert values["batch"] * values["steps"] * values["length"] == 4000 * 256 * 128


@pytest.mark.prove
def test_every_row_trains_to_the_end_with_weights_of_its_own(tmp_path):
    data = write_corpus(tmp_path / "corpus") / "data"
    small = (*(f"change.{size}" for size in SIZES), "length=16", "device=cpu", "workers=0")
    tiny = replace(SHORT, data=data, out=tmp_path, steps=4, batch=4, overrides=(*small, "evaluate_batches=1"))
    weights = set()
    for arm in TABLE.arms:
        recipe = recipe_of(arm, tiny)
        assert train(recipe).finished, arm.name
        weights.add(Path(recipe.out, "final", "model.safetensors").read_bytes())
    assert len(weights) == len(TABLE.arms)


def test_every_row_has_a_label_and_a_folder_of_its_own():
    assert len(TABLE.arms) == 16
    assert len({arm.label for arm in TABLE.arms}) == len({folder_of(arm, 0, SHORT) for arm in TABLE.arms}) == 16


def test_another_batch_takes_the_same_tokens_in_other_steps():
    for name, batch, steps in (("batch-x0.5", 128, 8000), ("batch-x2", 512, 2000)):
        recipe = recipe_of(row(name))
        assert (recipe.batch, recipe.steps) == (batch, steps)


def test_a_row_wins_over_the_common_protocol_and_the_command_line_comes_last():
    words = pretraining_command(row("lr-1e-3"), 0, replace(SHORT, overrides=("compile=none",)))
    assert words.index("lr=5e-4") < words.index("lr=1e-3") < words.index("compile=none")
    assert recipe_of(row("lr-1e-3")).lr == 1e-3


def test_a_row_is_fine_tuned_from_its_own_folder_without_dropout_in_the_head():
    words = finetuning_command(row("dropout-0.1"), 1, 0, SHORT)
    assert "model=out/convbert-small-rtd-dropout-0.1-1/final" in words
    assert "head.dropout=0.0" in words


def test_rows_are_chosen_by_their_names():
    chosen = papers._rows(TABLE, "convbert-small-rtd-lr-1e-3,convbert-small-rtd,convbert-small-rtd-batch-x2")
    assert chosen.arms == (FIRST, row("lr-1e-3"), row("batch-x2"))
    with pytest.raises(InputError, match="got 'lr-1e-3'; its rows are convbert-small-rtd, convbert-small-rtd-lr-1e-3"):
        papers._rows(TABLE, "lr-1e-3")


def test_a_key_that_a_row_changes_cannot_be_set_for_all_rows(tmp_path):
    for key, name in (("lr", "lr-1e-3"), ("batch", "batch-x0.5")):
        here, out = str(tmp_path), tmp_path / "out"
        with pytest.raises(
            InputError, match=f"^{key} can't be set for all rows, because the row '.*-{name}' changes it"
        ):
            papers.main(["settings", "--data", here, "--glue", here, "--out", str(out), "compile=none", f"{key}=1"])
        assert not out.exists()
        check_rows(replace(TABLE, arms=(FIRST,)), replace(SHORT, overrides=(f"{key}=1",)))


def test_odd_steps_and_batches_cannot_be_halved():
    for steps, batch in ((4001, 256), (4000, 255)):
        with pytest.raises(
            InputError, match=f"must be even for the row '.*-batch-x.*', got {steps} and {batch}; change"
        ):
            check_rows(TABLE, replace(SHORT, steps=steps, batch=batch))


def test_the_page_has_settings_and_differences_instead_of_a_papers_figures():
    outcomes = [outcome_of(FIRST, 0.5), outcome_of(row("lr-1e-3"), 0.525), outcome_of(row("batch-x2"), 0.49)]
    page = markdown("settings", TABLE, SHORT, outcomes, "settings.svg")
    assert "# Settings of pre-training\n" in page
    assert "| mean | difference |\n" in page
    assert "| common settings | `convbert-small-rtd` | abc1234 | 0 | 0.2500 | 50.0 (50.0–50.0) | 50.0 |  |" in page
    assert "| `convbert-small-rtd lr=1e-3` | abc1234 | 0 | 0.2500 | 52.5 (52.5–52.5) | 52.5 | +2.5 |" in page
    assert (
        "| `convbert-small-rtd steps=2000 batch=512` | abc1234 | 0 | 0.2500 | 49.0 (49.0–49.0) | 49.0 | -1.0 |" in page
    )
    assert "131.1 million tokens (4,000 steps of 256 × 128)" in page
    assert "Tokens are counted in the same way for all rows, as steps × batch × length with padding" in page
    order = "twice the batch and half the steps, common settings, learning rate 1e-3."
    assert f"\nFrom lowest to highest here: {order}\n" in page
    assert "paper's figure" not in page
    assert "In the paper" not in page


def test_rows_are_compared_with_the_first_row_of_the_same_seed():
    muon = row("optimizer.kind-muon")
    outcomes = [outcome_of(FIRST, 0.5), outcome_of(FIRST, 0.6, 1), outcome_of(muon, 0.55), outcome_of(muon, 0.55, 1)]
    page = markdown("settings", TABLE, SHORT, outcomes, "")
    assert "| 55.0 | +5.0 |" in page
    assert "| 55.0 | -5.0 |" in page
    assert "| 55.0 |  |" in markdown("settings", TABLE, SHORT, outcomes[2:], "")


@needs_plots
def test_the_picture_has_a_second_panel_only_for_a_papers_figures(tmp_path, monkeypatch):
    for name, panels in (("settings", 1), ("convolutions", 2)):
        figures = []
        monkeypatch.setattr("benchmarks.paper_report.write", lambda figure, _, figures=figures: figures.append(figure))
        table = TABLES[name]
        draw(table, [outcome_of(arm, 0.5) for arm in table.arms], tmp_path / "picture.svg")
        assert len(figures[0].axes) == panels
