"""What a small encoder is worth, as a page: `python -m lightbert.bench.small_encoder`.

Records the results of finished runs in docs/results/small-encoder.json, and writes the page and its picture from them:

    … pretraining NAME RUN --machine "one H200" [--after NAME | --teacher NAME] [--minutes 13]
    … scores NAME RUNS … --of PRETRAINING --machine "one H200"
    … page
"""

import argparse
import sys
from pathlib import Path

from lightbert.bench.encoder_page import draw, markdown
from lightbert.bench.encoder_records import load, save
from lightbert.bench.encoder_runs import Origin, read_distillation, read_pretraining, read_scores
from lightbert.bench.source_version import commit
from lightbert.errors import InputError
from lightbert.files import write_atomic

PAGE = Path("docs/results/small-encoder.md")
QUOTED = Path("lab/small-encoder.toml")
COMMAND = "python -m lightbert.bench.small_encoder page"


def main(arguments: list[str] | None = None) -> None:
    """Record a result if one is given, and write the page."""
    chosen = _parser().parse_args(arguments)
    path, quoted = chosen.page.with_suffix(".json"), load(chosen.quoted)
    records = load(path)
    if chosen.action != "page":
        origin = Origin(chosen.name, chosen.commit or commit(), chosen.machine)
        if chosen.action == "scores":
            records = records.add(read_scores(chosen.runs, origin, of=chosen.of))
        elif chosen.teacher:
            student = read_distillation(chosen.run, origin, teacher=chosen.teacher, minutes=chosen.minutes)
            records = records.add(student)
        else:
            records = records.add(read_pretraining(chosen.run, origin, after=chosen.after, minutes=chosen.minutes))
    shown = records.with_quoted(quoted).check()
    if chosen.action != "page":
        save(records, path)
    picture = chosen.page.with_suffix(".svg")
    write_atomic(chosen.page, markdown(shown, picture.name, COMMAND))
    draw(shown, picture)
    print(f"wrote {chosen.page}: {len(shown.pretrainings)} pre-trainings, {len(shown.scores)} rows of scores")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lightbert.bench.small_encoder",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--page", type=Path, default=PAGE, help="the page; its records are the .json file next to it")
    shared.add_argument("--quoted", type=Path, default=QUOTED, help="records whose runs no longer exist, as TOML")
    origin = argparse.ArgumentParser(add_help=False)
    origin.add_argument("name", help="the name of the row; a row of the same name is replaced")
    origin.add_argument("--machine", required=True, help="what the run ran on")
    origin.add_argument("--commit", default="", help="the commit that the run ran at; by default the current one")
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("pretraining", parents=[origin, shared], help="record a pre-training or a distillation")
    run.add_argument("run", type=Path, help="a run folder, or a model folder with the card of its run")
    before = run.add_mutually_exclusive_group()
    before.add_argument("--after", default="", help="the name of the pre-training that this one continues")
    before.add_argument("--teacher", default="", help="for a distillation, the name of its teacher's pre-training")
    run.add_argument("--minutes", type=float, default=0.0, help="by default, tokens by the speed in result.json")
    runs = actions.add_parser("scores", parents=[origin, shared], help="record the scores of fine-tunings")
    runs.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of runs, of one recipe")
    runs.add_argument("--of", required=True, help="the name of the pre-training of their model")
    actions.add_parser("page", parents=[shared], help="write the page again")
    return parser


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"lightbert.bench.small_encoder: {error}")
