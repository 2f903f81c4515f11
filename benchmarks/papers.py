"""The papers' small tables, and one of settings: `python -m benchmarks.papers TABLE --data … --glue … --out …`.

Pre-trains every row of a table on your text, in the same way except for what the rows compare, fine-tunes it on GLUE
tasks, and writes OUT/TABLE.md and OUT/TABLE.svg. After --minutes, or on SIGTERM or SIGINT, all processes save a
checkpoint; the page has the rows that are finished. The exit code is 75 if some are not, and the same command continues
them.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.pages import check_page, run_main
from benchmarks.paper_report import draw, markdown
from benchmarks.paper_runs import TABLES, Protocol, Table, check_rows, run_table
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.train.signals import EXIT_CODE, catch_signals


def _rows(table: Table, names: str | None) -> Table:
    """The table with only the rows of these names; None: all."""
    if names is None:
        return table
    known = [arm.name for arm in table.arms]
    for name in names.split(","):
        if name not in known:
            raise InputError(f"--rows must name rows of the table, got '{name}'; its rows are {', '.join(known)}")
    return replace(table, arms=tuple(arm for arm in table.arms if arm.name in names.split(",")))


def main(arguments: list[str] | None = None) -> None:
    """Run one table."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.papers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--data", type=Path, required=True, help="a prepared folder")
    parser.add_argument("--glue", type=Path, required=True, help="the folder of the GLUE tasks")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs and of the page")
    parser.add_argument(
        "--rows", help="only the rows with these names, the recipe and what the row changes in it; separated by commas"
    )
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=1, help="the number of pre-training seeds")
    parser.add_argument("--tasks", default="cola,mrpc,stsb")
    parser.add_argument("--task-seeds", type=int, default=3, help="the number of fine-tuning seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once, each with one training")
    parser.add_argument("--minutes", type=float, default=0.0, help="then all processes save and stop; 0: no limit")
    parser.add_argument(
        "--finetuning", action="append", default=[], help="a key=value pair for fine-tuning; repeatable"
    )
    parser.add_argument("--page", type=Path, help="the page to write, by default OUT/TABLE.md")
    parser.add_argument("--note", default="", help="added to the first sentence, such as the machine and the commit")
    parser.add_argument("overrides", nargs="*", help="more key=value pairs for pre-training")
    chosen = parser.parse_intermixed_args(arguments)
    protocol = Protocol(
        chosen.data,
        chosen.glue,
        chosen.out,
        steps=chosen.steps,
        batch=chosen.batch,
        seeds=tuple(range(chosen.seeds)),
        tasks=tuple(chosen.tasks.split(",")),
        task_seeds=tuple(range(chosen.task_seeds)),
        jobs=chosen.jobs,
        minutes=chosen.minutes,
        overrides=tuple(chosen.overrides),
        finetuning=tuple(chosen.finetuning),
    )
    if protocol.jobs < 1:
        raise InputError(f"--jobs must be >= 1, got {protocol.jobs}")
    for option, folder in (("--data", protocol.data), ("--glue", protocol.glue)):
        if not folder.is_dir():
            raise InputError(f"{option} must be a folder, got '{folder}'")
    if chosen.page is not None:
        check_page("--page", chosen.page)
    table = _rows(TABLES[chosen.table], chosen.rows)
    check_rows(table, protocol)
    with catch_signals() as interrupted, interrupted.deferred():
        outcomes = run_table(table, protocol, interrupted)
    wanted = len(table.arms) * len(protocol.seeds)
    if outcomes:
        page = chosen.page or protocol.out / f"{chosen.table}.md"
        note = f" {chosen.note}" if chosen.note else ""
        write_atomic(page, markdown(chosen.table, table, protocol, outcomes, page.with_suffix(".svg").name, note))
        draw(table, outcomes, page.with_suffix(".svg"))
        print(f"wrote {page}: {len(outcomes)} of {wanted} rows")
    if len(outcomes) < wanted:
        print(
            f"{wanted - len(outcomes)} of {wanted} rows are not finished; run the same command again to continue; the "
            f"logs are in '{protocol.out}'",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODE)


if __name__ == "__main__":
    run_main(main)
