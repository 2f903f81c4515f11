"""The order in which the rows of a table are trained: a row that is pre-trained is fine-tuned first."""

from pathlib import Path

from faked_table import (
    ROWS,
    SECONDS,
    TABLE,
    A,
    B,
    C,
    finish,
    name_of,
    protocol,
    record_bar,
    record_starts,
    started,
    write_result,
)

from benchmarks import commands, paper_runs
from benchmarks.paper_runs import folder_of, pretraining_command


def test_one_job_fine_tunes_each_row_before_it_pretrains_the_next(tmp_path, monkeypatch, capsys):
    names = record_starts(monkeypatch)
    outcomes = paper_runs.run_table(TABLE, protocol(tmp_path))
    assert names == ["a", "a.0", "a.1", "b", "b.0", "b.1", "c", "c.0", "c.1"]
    assert [outcome.arm for outcome in outcomes] == [A, B, C]
    assert "row " not in capsys.readouterr().err


def test_pretraining_seeds_come_one_after_the_other(tmp_path, monkeypatch):
    names = record_starts(monkeypatch)
    outcomes = paper_runs.run_table(TABLE, protocol(tmp_path, seeds=(0, 1), task_seeds=(0,)))
    assert [name for name in names if "." not in name] == ["a", "b", "c", "a", "b", "c"]
    assert [(outcome.arm, outcome.seed) for outcome in outcomes] == [(arm, seed) for seed in (0, 1) for arm in ROWS]


def test_two_jobs_start_a_pretraining_only_when_no_fine_tuning_waits(tmp_path, monkeypatch):
    with started(tmp_path, monkeypatch, jobs=2) as (processes, table):
        processes.expect({"a", "b"})
        processes.end("b", then={"a", "b.0"})
        processes.end("b.0", then={"a", "b.1"})
        processes.end("a", then={"a.0", "b.1"})
        processes.end("b.1", then={"a.0", "a.1"})
        processes.end("a.1", then={"a.0", "c"})
        processes.end("a.0", then={"c"})
        processes.end("c", then={"c.0", "c.1"})
        processes.end("c.1", then={"c.0"})
        processes.end("c.0", then=set())
        assert [outcome.arm for outcome in table.result(SECONDS)] == [A, B, C]


def test_fine_tunings_of_the_first_row_come_first(tmp_path, monkeypatch):
    with started(tmp_path, monkeypatch, jobs=3) as (processes, table):
        processes.expect({"a", "b", "c"})
        processes.end("c", then={"a", "b", "c.0"})
        processes.end("a", then={"a.0", "b", "c.0"})
        processes.end("c.0", then={"a.0", "b", "a.1"})
        processes.end("a.0", then={"c.1", "b", "a.1"})
        processes.end("b", then={"c.1", "b.0", "a.1"})
        processes.end("c.1", then={"b.1", "b.0", "a.1"})
        for name, others in (("a.1", {"b.0", "b.1"}), ("b.0", {"b.1"}), ("b.1", set())):
            processes.end(name, then=others)
        assert len(table.result(SECONDS)) == 3


def write_earlier_runs(whole):
    """Row b is pre-trained and fine-tuned with one seed, row c was started."""
    finish(B, whole, 0)
    commands.begin(Path(f"{folder_of(C, 0, whole)}.json"), pretraining_command(C, 0, whole))


def test_a_restart_continues_with_fine_tunings_and_then_with_started_pretrainings(tmp_path, monkeypatch):
    write_earlier_runs(protocol(tmp_path))
    names, bars = record_starts(monkeypatch), record_bar(monkeypatch)
    paper_runs.run_table(TABLE, protocol(tmp_path))
    assert names == ["b.1", "c", "c.0", "c.1", "a", "a.0", "a.1"]
    assert (bars[0].done, bars[0].total) == (9, 9)


def test_a_restart_with_two_jobs_uses_both_at_once(tmp_path, monkeypatch):
    write_earlier_runs(protocol(tmp_path, jobs=2))
    with started(tmp_path, monkeypatch, jobs=2) as (processes, table):
        processes.expect({"b.1", "c"})
        processes.end("b.1", then={"c", "a"})
        processes.end("c", then={"c.0", "a"})
        processes.end("a", then={"c.0", "a.0"})
        for name, others in (("c.0", {"a.0", "a.1"}), ("a.0", {"c.1", "a.1"}), ("a.1", {"c.1"}), ("c.1", set())):
            processes.end(name, then=others)
        assert [outcome.arm for outcome in table.result(SECONDS)] == [A, B, C]


def test_a_row_that_another_table_finishes_meanwhile_is_not_trained_again(tmp_path, monkeypatch):
    def run(command):
        if name_of(command) == "a":
            finish(B, protocol(tmp_path), 0)
        return write_result(command)

    names, bars = record_starts(monkeypatch, run), record_bar(monkeypatch)
    assert len(paper_runs.run_table(TABLE, protocol(tmp_path))) == 3
    assert names == ["a", "a.0", "a.1", "b.1", "c", "c.0", "c.1"]
    assert bars[0].done == 9


def test_a_run_counts_as_soon_as_it_ends(tmp_path, monkeypatch):
    bars = record_bar(monkeypatch)
    with started(tmp_path, monkeypatch, jobs=2) as (processes, table):
        processes.expect({"a", "b"})
        assert (bars[0].done, bars[0].total) == (0, 9)
        processes.end("b", then={"a", "b.0"})
        assert bars[0].done == 1
        processes.end("b.0", then={"a", "b.1"})
        assert bars[0].done == 2
        processes.allow_to_end("a", "a.0", "a.1", "b.1", "c", "c.0", "c.1")
        assert len(table.result(SECONDS)) == 3
    assert bars[0].done == 9
