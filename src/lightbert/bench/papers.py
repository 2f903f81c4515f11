"""The papers' small tables on your own text: `python -m lightbert.bench.papers convolutions --data … --glue … --out …`.

Pre-trains every row of a table in the same way, fine-tunes it on GLUE tasks, and writes OUT/TABLE.md and OUT/TABLE.svg.
"""

import argparse
import sys
from pathlib import Path

from lightbert.bench.paper_report import draw, markdown
from lightbert.bench.paper_runs import Protocol, run_table
from lightbert.bench.paper_tables import TABLES
from lightbert.errors import InputError
from lightbert.files import write_atomic


def main(arguments: list[str] | None = None) -> None:
    """Run one table."""
    parser = argparse.ArgumentParser(prog="lightbert.bench.papers", description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--data", type=Path, required=True, help="a prepared folder")
    parser.add_argument("--glue", type=Path, required=True, help="the folder of the GLUE tasks")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs and of the page")
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=1, help="the number of pre-training seeds")
    parser.add_argument("--tasks", default="cola,mrpc,stsb")
    parser.add_argument("--task-seeds", type=int, default=3, help="the number of fine-tuning seeds")
    parser.add_argument("--jobs", type=int, default=1, help="rows that are trained at once")
    parser.add_argument("--minutes", type=float, default=0.0, help="no row is started after this time; 0: no limit")
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
    )
    for option, folder in (("--data", protocol.data), ("--glue", protocol.glue)):
        if not folder.is_dir():
            raise InputError(f"{option} must be a folder, got '{folder}'")
    table = TABLES[chosen.table]
    outcomes = run_table(table, protocol)
    if not outcomes:
        raise InputError(f"no row finished; see the logs in {protocol.out}")
    page = protocol.out / f"{chosen.table}.md"
    write_atomic(page, markdown(chosen.table, table, protocol, outcomes, f" {chosen.note}" if chosen.note else ""))
    draw(table, outcomes, page.with_suffix(".svg"))
    print(f"wrote {page}: {len(outcomes)} of {len(table.arms) * len(protocol.seeds)} rows")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"lightbert.bench.papers: {error}")
