"""Write the model card of a bundled model: the card of its pre-training run, with data, uses, limits and scores.

    python lab/bundled_card.py runs/hour

writes src/lightbert/bundled/NAME/README.md; RUN/final/README.md is the card of the run, lab/NAME.toml has the rest. The
scores are those that `python -m benchmarks.small_encoder scores` recorded under the name in the key `scores`.
Without a run, only the scores of the existing card are replaced.
"""

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.encoder_records import TASKS, Scores, load
from lightbert.errors import InputError

_TITLES = TASKS | {"squad": "SQuAD 1.1"}
_METRICS = {
    "mcc": "Matthews correlation",
    "accuracy": "accuracy",
    "spearman": "Spearman correlation",
    "pearson": "Pearson correlation",
    "f1": "F1",
}
ROOT = Path(__file__).parents[1]


def render(card: str, facts: dict[str, Any], scores: Scores | None) -> str:
    """Return the card of a bundled model, from that of its run, the facts of a TOML file and recorded scores."""
    _, front_matter, body = card.split("---\n", 2)
    _, usage_and_rest = body.split("## How to use it\n", 1)
    usage, rest = usage_and_rest.split("## Data\n", 1)
    data, training_and_metrics = rest.split("## Training\n", 1)
    parts = [
        f"---\nlanguage: {facts['language']}\n{front_matter}---",
        f"# {facts['title']}",
        facts["summary"].strip(),
        "## How to use it",
        _named(usage.strip(), facts["name"]),
        "## Uses",
        _list(facts["use"]["intended"]),
        "Not intended:",
        _list(facts["use"]["not_intended"]),
        "## Limits",
        _list(facts["use"]["limits"]),
        "## Data",
        _table(("text", "licence"), [(each["text"], each["licence"]) for each in facts["corpora"]]),
        _table(("corpus", ""), facts["data"].items()),
        "The part that the run read:",
        data.strip(),
        "## Training",
        facts["training"].strip(),
        training_and_metrics.strip(),
        *_scores(scores),
    ]
    return "\n\n".join(parts) + "\n"


def with_scores(card: str, scores: Scores | None) -> str:
    """Return the card of a bundled model with other scores."""
    return "\n\n".join([card.partition("\n## Scores\n")[0].strip(), *_scores(scores)]) + "\n"


def _named(usage: str, name: str) -> str:
    """The lines of the run's card, with the name of the bundled model instead of the folder."""
    usage = usage.replace('lightbert.load("FOLDER")  # the folder of this file', f'lightbert.load("{name}")')
    return usage.replace("convert FOLDER", f"convert {name}")


def _scores(scores: Scores | None) -> list[str]:
    if scores is None:
        return []
    rows = [
        (_TITLES[task], _METRICS[each.metric], f"{each.median:.3f}", str(len(each.values)))
        for task, each in scores.tasks.items()
    ]
    source = f"; quoted from {scores.source}" if scores.source else ""
    protocol = f"Medians over fine-tuning seeds on the development sets, at commit {scores.commit}{source}:"
    commands = "```sh\n" + "\n".join(scores.commands) + "\n```"
    return ["## Scores", protocol, _table(("task", "metric", "median", "seeds"), rows), commands]


def recorded(name: str) -> Scores | None:
    """The scores of this name, measured or quoted; None without a name."""
    measured = load(ROOT / "docs" / "results" / "small-encoder.json")
    return measured.with_quoted(load(ROOT / "lab" / "small-encoder.toml")).check().find(name) if name else None


def _list(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(titles: tuple[str, ...], rows: Any) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ("---",) * len(titles), *rows))


def main() -> None:
    """Write the card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="the folder of the pre-training run; none: only the scores")
    parser.add_argument("--name", default="convbert-small-en", help="the bundled model")
    given = parser.parse_args()
    known = tomllib.loads((ROOT / "lab" / f"{given.name}.toml").read_text(encoding="utf-8"))
    card, scores = ROOT / "src" / "lightbert" / "bundled" / given.name / "README.md", recorded(known["scores"])
    if given.run is None:
        text = with_scores(card.read_text(encoding="utf-8"), scores)
    else:
        text = render((given.run / "final" / "README.md").read_text(encoding="utf-8"), known, scores)
    card.write_text(text, encoding="utf-8")
    print(card)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"bundled_card: {error}")
