"""The page of the small encoder: records are read from run folders and kept, the page shows them next to targets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import write_corpus

from benchmarks.encoder_records import (
    TASKS,
    Origin,
    Pretraining,
    Records,
    Scores,
    TaskScores,
    load,
    read_distillation,
    read_pretraining,
    read_scores,
    save,
)
from benchmarks.pages import commit
from benchmarks.small_encoder import COMMAND, TARGETS, main, markdown, points
from lightbert import bundled
from lightbert.commands import jobs
from lightbert.errors import InputError

ROOT = Path(__file__).parents[2]
ORIGIN = Origin("first", "abc1234", "a laptop")
HOUR = Pretraining(
    "hour", "tiny-rtd", "lightbert pretrain tiny-rtd", "abc1234", "a laptop", 10.0, 10**9, 2e16, 1e16, {}
)
MORE = replace(HOUR, name="more", after="hour", tokens=3 * 10**9)
STUDENT = replace(HOUR, name="thin", teacher="hour", flops_electra=0.0)


def scores(name, of, value, **changes):
    tasks = {task: TaskScores("accuracy", (value - 0.1, value, value + 0.1)) for task in TASKS}
    made = Scores(name, of, "glue", ("lightbert finetune glue",), "abc1234", "a laptop", tasks)
    return replace(made, **changes)  # type: ignore[arg-type]


def write_run(folder, task, seed, score, recipe="glue-convbert-small-en"):
    (folder / "final").mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"metric": "mcc", "metrics": {"mcc": score, "accuracy": 0.9}}))
    (folder / "recipe.json").write_text(json.dumps({"task": task, "seed": seed}))
    training = f"```sh\nlightbert finetune {recipe} out=x\n```\n\n```toml\nlr = 1.0\n```"
    (folder / "final" / "README.md").write_text(f"# A model\n\n## Training\n\n{training}\n\n## Metrics\n")


def test_the_card_of_the_bundled_model_gives_its_tokens_and_flops():
    record = read_pretraining(bundled.FOLDER / "convbert-small-en", ORIGIN, minutes=13.5)
    assert record.tokens == 3_000 * 1024 * 32 + 32_000 * 256 * 128 + 5_000 * 512 * 64
    recipe = "lab/convbert-small-en-vectors.toml"
    assert (record.recipe, record.minutes, record.held_out["rtd_loss"]) == (recipe, 13.5, 0.1793)
    # ConvBERT Table 3: 1.3e18 for 16.4 billion tokens of length 128; longer texts cost more per token.
    assert record.flops_electra == pytest.approx(1.3e18 * record.tokens / 16.4e9, rel=0.1)
    assert 0.5 * record.flops_electra < record.flops_matmul < record.flops_electra


@pytest.mark.skipif("convbert-small-en" not in bundled.installed(), reason="the weights of the teacher are missing")
def test_the_card_of_the_bundled_student_gives_its_tokens_and_flops():
    record = read_distillation(bundled.FOLDER / "convbert-thin-en", ORIGIN, teacher="longer", minutes=14.0)
    assert (record.recipe, record.teacher, record.tokens) == ("convbert-thin-distill", "longer", 24_000 * 256 * 128)
    # A token's forward pass: 7.7 MFLOP of the student, thrice with the backward pass; 19 of the teacher; and the head.
    assert record.flops_matmul == pytest.approx((3 * 7.7e6 + 19e6) * record.tokens, rel=0.15)
    assert record.flops_electra == 0.0


def test_a_run_of_the_other_kind_is_an_error_with_the_remedy():
    with pytest.raises(InputError, match="is a distillation; add --teacher and the name of its teacher's pre-training"):
        read_pretraining(bundled.FOLDER / "convbert-thin-en", ORIGIN, minutes=14.0)
    with pytest.raises(InputError, match="is not a distillation; leave out --teacher"):
        read_distillation(bundled.FOLDER / "convbert-small-en", ORIGIN, teacher="more", minutes=14.0)


def test_a_distillation_in_stages_is_not_read(tmp_path):
    card = (bundled.FOLDER / "convbert-thin-en" / "README.md").read_text(encoding="utf-8")
    card = card.replace('strategy = "akt"', 'strategy = "jkt"\ntransfer_steps = 10')
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    with pytest.raises(InputError, match=r"must be distilled in one stage \(akt or pd\), got strategy 'jkt'"):
        read_distillation(tmp_path, ORIGIN, teacher="longer")


def test_a_run_folder_gives_the_minutes_of_its_steps(tmp_path):
    data = write_corpus(tmp_path / "corpus") / "data"
    settings = {"data": str(data), "out": str(tmp_path / "run"), "steps": 2, "batch": 2, "length": 32, "device": "cpu"}
    jobs.pretrain("tiny-rtd", **settings)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    record = read_pretraining(tmp_path / "run", ORIGIN, after="hour")
    assert (record.name, record.recipe, record.after, record.tokens) == ("first", "tiny-rtd", "hour", 128)
    assert record.minutes == pytest.approx(128 / result["tokens_per_second"] / 60)
    assert record.held_out["rtd_loss"] == pytest.approx(result["held_out"]["rtd_loss"], abs=1e-4)


def test_the_runs_of_a_model_are_collected_by_task_in_the_order_of_their_seeds(tmp_path):
    for seed, score in ((1, 0.4), (0, 0.5)):
        write_run(tmp_path / f"{seed}" / "runs" / "cola", "cola", seed, score)
    write_run(tmp_path / "squad", "squad", 0, 0.8, recipe="squad-convbert-small-en")
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "recipe.json").write_text("{}")
    record = read_scores([tmp_path], ORIGIN, of="hour")
    assert record.tasks == {"cola": TaskScores("mcc", (0.5, 0.4)), "squad": TaskScores("mcc", (0.8,))}
    assert record.recipe == "glue-convbert-small-en, squad-convbert-small-en"
    assert len(record.commands) == 2
    assert record.mean is None


def test_a_seed_that_occurs_twice_is_an_error(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name, "cola", 0, 0.5)
    with pytest.raises(InputError, match="repeats seed 0 of cola; give one run for each seed"):
        read_scores([tmp_path], ORIGIN, of="hour")


def test_folders_without_finished_runs_are_an_error(tmp_path):
    with pytest.raises(InputError, match="no finished fine-tuning of a named task in"):
        read_scores([tmp_path], ORIGIN, of="hour")
    with pytest.raises(InputError, match=r"README.md' not found; give the folder of a finished run"):
        read_pretraining(tmp_path, ORIGIN)


def test_records_are_kept_and_replaced_by_name(tmp_path):
    records = Records().add(HOUR).add(MORE).add(scores("first", "hour", 0.5))
    save(records, tmp_path / "records.json")
    assert load(tmp_path / "records.json") == records
    again = records.add(replace(HOUR, minutes=12.0))
    assert [each.minutes for each in again.pretrainings] == [12.0, 10.0]
    assert records.tokens("more") == 4 * 10**9


def test_a_measured_record_takes_precedence_over_a_quoted_one():
    quoted = Records(
        (HOUR,), (scores("first", "hour", 0.2, source="a page"), scores("old", "hour", 0.3, source="a page"))
    )
    shown = Records((), (scores("first", "hour", 0.5),)).with_quoted(quoted).check()
    assert {each.name: each.source for each in shown.scores} == {"old": "a page", "first": ""}


def test_a_missing_or_circular_pretraining_is_an_error():
    with pytest.raises(InputError, match="'first' names the pre-training 'hour', which is not recorded"):
        Records((), (scores("first", "hour", 0.5),)).check()
    with pytest.raises(InputError, match="continues itself"):
        Records((replace(HOUR, after="more"), MORE)).check()


def test_a_damaged_file_is_an_error_that_names_it(tmp_path):
    for content in ("{", '{"scores": 3}'):
        (tmp_path / "records.json").write_text(content)
        with pytest.raises(InputError, match=r"records\.json'"):
            load(tmp_path / "records.json")


def test_the_means_of_the_targets_are_those_asked_for():
    assert [round(target.mean, 1) for target in TARGETS] == [77.6, 78.3]


def test_the_page_has_scores_targets_costs_the_curve_and_the_commands():
    quoted = scores("old", "hour", 0.5, source="a page")
    records = Records((HOUR, MORE), (scores("first", "hour", 0.6), scores("second", "more", 0.7), quoted))
    page = markdown(records, "curve.svg", "the command")
    assert "| first | 1.00 billion |" + " 60.0 (50.0–70.0) |" * 5 + " 60.0 | 3 |  |" in page
    assert "| old * | 1.00 billion |" in page
    assert "| more | hour | tiny-rtd | a laptop | 3.00 billion | 10 | 2.00e+16 | 1.00e+16 |  |  |" in page
    assert "| scores: second | glue | abc1234 | a laptop | run folders |" in page
    assert "# scores: second\nlightbert finetune glue\n" in page
    assert [point.name for point in points(records)] == ["first", "old", "second"]


def test_a_student_is_in_the_tables_but_not_on_the_learning_curve():
    records = Records((HOUR, STUDENT), (scores("first", "hour", 0.6), scores("small", "thin", 0.5))).check()
    page = markdown(records, "curve.svg", "the command")
    assert "`thin` is a student of `hour`: its tokens are those of its distillation." in page
    assert "| thin | student of hour | tiny-rtd | a laptop | 1.00 billion | 10 |  | 1.00e+16 |  |  |" in page
    assert "| small | 1.00 billion |" in page
    assert [point.name for point in points(records)] == ["first"]
    with pytest.raises(InputError, match="'thin' names the pre-training 'hour', which is not recorded"):
        Records((STUDENT,)).check()


def test_the_command_records_scores_and_writes_page_and_picture(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    shared = ["--machine", "a laptop", "--page", str(tmp_path / "page.md"), "--quoted", str(tmp_path / "none.toml")]
    model = str(bundled.FOLDER / "convbert-small-en")
    main(["pretraining", "hour", model, "--minutes", "11", "--commit", "abc1234", *shared])
    write_run(tmp_path / "runs", "cola", 0, 0.5)
    main(["scores", "first", str(tmp_path / "runs"), "--of", "hour", *shared])
    assert "1 pre-trainings, 1 rows of scores" in capsys.readouterr().out
    recorded = load(tmp_path / "page.json")
    [training], [record] = recorded.pretrainings, recorded.scores
    assert record.commit == commit()
    assert f"| first | {training.tokens / 1e9:.2f} billion | 50.0 |" in (tmp_path / "page.md").read_text()
    assert "<svg" in (tmp_path / "page.svg").read_text()


def test_scores_of_an_unknown_pretraining_are_not_recorded(tmp_path):
    write_run(tmp_path / "runs", "cola", 0, 0.5)
    shared = ["--machine", "a laptop", "--page", str(tmp_path / "page.md"), "--quoted", str(tmp_path / "none.toml")]
    with pytest.raises(InputError, match="'first' names the pre-training 'hour', which is not recorded"):
        main(["scores", "first", str(tmp_path / "runs"), "--of", "hour", *shared])
    assert not (tmp_path / "page.json").exists()


def test_the_page_in_the_documentation_is_up_to_date():
    results = ROOT / "docs" / "results"
    shown = load(results / "small-encoder.json").with_quoted(load(ROOT / "lab" / "small-encoder.toml")).check()
    assert (results / "small-encoder.md").read_text(encoding="utf-8") == markdown(shown, "small-encoder.svg", COMMAND)
