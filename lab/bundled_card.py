"""Write the model card of a bundled model: the card of its pre-training run, with data, uses, limits and scores.

    python lab/bundled_card.py runs/hour

writes src/lightbert/bundled/NAME/README.md; RUN/final/README.md is the card of the run, lab/NAME.toml has the rest.
"""

import argparse
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def render(card: str, facts: dict[str, Any]) -> str:
    """Return the card of a bundled model, from that of its run and the facts of a TOML file."""
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
        f"{facts['minutes']} minutes on {facts['machine']}.",
        training_and_metrics.strip(),
        *_scores(facts["scores"]),
    ]
    return "\n\n".join(parts) + "\n"


def _named(usage: str, name: str) -> str:
    """The lines of the run's card, with the name of the bundled model instead of the folder."""
    usage = usage.replace('lightbert.load("FOLDER")  # the folder of this file', f'lightbert.load("{name}")')
    return usage.replace("convert FOLDER", f"convert {name}")


def _scores(scores: dict[str, list[Any]]) -> list[str]:
    if not scores:
        return []
    rows = [(task, metric, f"{value:.3f}", str(seeds)) for task, (metric, value, seeds) in scores.items()]
    protocol = "Medians on the development sets, by the recipe `glue-convbert-small` with 3 epochs (STS-B 5, RTE 10):"
    return ["## Scores", protocol, _table(("task", "metric", "median", "seeds"), rows)]


def _list(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(titles: tuple[str, ...], rows: Any) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ("---",) * len(titles), *rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of the pre-training run")
    parser.add_argument("--name", default="convbert-small-en", help="the bundled model")
    given = parser.parse_args()
    known = tomllib.loads((ROOT / "lab" / f"{given.name}.toml").read_text(encoding="utf-8"))
    written = ROOT / "src" / "lightbert" / "bundled" / given.name / "README.md"
    written.write_text(render((given.run / "final" / "README.md").read_text(encoding="utf-8"), known), encoding="utf-8")
    print(written)
