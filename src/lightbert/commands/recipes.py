"""`lightbert recipes`: the recipes that ship with the package, and what each one says."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert import recipes
from lightbert.commands.report import AsJson, show
from lightbert.commands.training import verbs_for
from lightbert.recipes.toml import to_toml

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Described:
    """One recipe: its values with those of its parents."""

    name: str
    verb: str
    comment: list[str]
    values: dict[str, Any]

    @property
    def summary(self) -> str:
        """The first line of the comment at its top."""
        return self.comment[0] if self.comment else ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"name": self.name, "verb": self.verb, "summary": self.summary, "values": self.values}

    def __rich__(self) -> "RenderableType":
        from rich.text import Text

        # Not markup: a table such as [optimizer] would be taken for a style.
        lines = [f"# {line}".rstrip() for line in self.comment]
        return Text("\n".join([*lines, to_toml(self.values).rstrip()]), no_wrap=True, overflow="ignore")


@dataclass(frozen=True)
class Listed:
    """All recipes that can be run."""

    recipes: list[Described]

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"recipes": [{"name": r.name, "verb": r.verb, "summary": r.summary} for r in self.recipes]}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        parts: list[RenderableType] = []
        for verb in dict.fromkeys(recipe.verb for recipe in self.recipes):
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
            table.add_column(no_wrap=True)
            table.add_column()
            for recipe in self.recipes:
                if recipe.verb == verb:
                    table.add_row(f"  {recipe.name}", recipe.summary)
            parts += [f"lightbert {verb} RECIPE key=value …", table, ""]
        return Group(*parts, "'lightbert recipes NAME' prints one, to be copied and changed.")


def describe(recipe: str) -> Described:
    """Read one recipe, packaged or a file."""
    values = recipes.read(recipe)
    return Described(recipe, next(iter(verbs_for(values)), ""), recipes.comment(recipe), values)


def run(name: str = "") -> Described | Listed:
    """Describe one recipe, or list all that ship with the package, in the order of the verbs."""
    if name:
        return describe(name)
    listed = [describe(each) for each in recipes.names()]
    order = ["pretrain", "distill", "finetune"]
    return Listed(sorted(listed, key=lambda recipe: order.index(recipe.verb)))


def command(
    name: Annotated[str, typer.Argument(help="A recipe to print; all are listed without one.")] = "",
    json: AsJson = False,
) -> None:
    """List the recipes that ship with the package, or print one of them as TOML with the values of its parents.

    A recipe of your own can begin with one of these: parent = "convbert-small-rtd".
    """
    show(run(name), json=json)
