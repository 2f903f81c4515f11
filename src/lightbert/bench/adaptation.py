"""What adapting the bundled model to a domain gains: `python -m lightbert.bench.adaptation --out …`.

Reads docstrings of installed packages as a task and as text, continues the pre-training of the bundled model on the
text with the recipe `adapt`, fine-tunes both weights on the task with several seeds, and writes a page. The exit code
is 75 after SIGTERM or SIGINT; the same command continues.
"""

import argparse
import sys
from pathlib import Path

from lightbert.bench.adaptation_page import markdown
from lightbert.bench.adaptation_runs import FINETUNING, MODEL, Protocol, commits, run_all, simple_classifiers
from lightbert.bench.kept_files import versions
from lightbert.bench.page_file import check_page
from lightbert.bench.row_runs import published
from lightbert.bench.section_task import PACKAGES, read_task
from lightbert.config import assignments, from_mapping, override
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.recipes import read
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.train.base_recipe import BaseRecipe
from lightbert.train.recipe import Recipe
from lightbert.train.signals import EXIT_CODE, catch_signals

_PROGRAM = "lightbert.bench.adaptation"
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Packages that are installed under another name."""


def main(arguments: list[str] | None = None) -> None:
    """Adapt, fine-tune, and write the page."""
    arguments = sys.argv[1:] if arguments is None else arguments
    chosen = _parser().parse_intermixed_args(arguments)
    if chosen.seeds < 1 or chosen.jobs < 1:
        raise InputError(f"--seeds and --jobs must be >= 1, got {chosen.seeds} and {chosen.jobs}")
    if chosen.page is not None:
        check_page("--page", chosen.page)
    _check_keys(Recipe, "adapt", [*chosen.overrides, "data=DIR"])
    _check_keys(FinetuneRecipe, "classify", [*chosen.finetuning, "data.train=FILE"])
    installed = versions(*(_DISTRIBUTIONS.get(package, package) for package in PACKAGES))
    if missing := [name for name, version in installed.items() if not version]:
        raise InputError(f"the task needs {', '.join(PACKAGES)}; install {' '.join(missing)}")
    protocol = Protocol(
        chosen.out,
        tuple(range(chosen.seeds)),
        chosen.jobs,
        adaptation=tuple(chosen.overrides),
        finetuning=(*FINETUNING, *chosen.finetuning),
    )
    task = read_task()
    with catch_signals() as interrupted, interrupted.deferred():
        outcome = run_all(task, protocol, lambda: bool(interrupted))
    if outcome is None:
        print(f"not finished; run the same command again to continue; the logs are in '{chosen.out}'", file=sys.stderr)
        sys.exit(EXIT_CODE if interrupted else 1)
    packages = ", ".join(f"{name} {version}" for name, version in installed.items())
    origin = f"Commits {', '.join(commits(protocol))}; {packages}{f'; {chosen.note}' if chosen.note else ''}."
    page = chosen.page or chosen.out / "adapt.md"
    command = published(["python", "-m", _PROGRAM, *arguments])
    write_atomic(page, markdown(task, protocol, outcome, simple_classifiers(task), command=command, origin=origin))
    print(f"wrote {page}")


def _check_keys(cls: type[BaseRecipe], recipe: str, words: list[str]) -> None:
    """Check the keys of commands that run minutes or hours later."""
    from_mapping(cls, override(read(recipe), assignments([f"model={MODEL}", *words, "out=DIR"])))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--page", type=Path, help="the page to write, by default OUT/adapt.md")
    parser.add_argument("--seeds", type=int, default=5, help="the number of fine-tuning seeds")
    parser.add_argument("--jobs", type=int, default=2, help="fine-tunings at once, in processes of one thread")
    parser.add_argument(
        "--finetuning", action="append", default=[], help="a key=value pair for fine-tuning; repeatable"
    )
    parser.add_argument("--note", default="", help="added to the first sentence, such as the machine")
    parser.add_argument("overrides", nargs="*", help="key=value pairs for the adaptation, such as max_minutes=60")
    return parser


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{_PROGRAM}: {error}")
