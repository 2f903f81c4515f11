"""`lightbert recipes`: list the packaged recipes, or print one."""

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
class RecipeReport:
    """A recipe with the values of its parents."""

    name: str
    verb: str
    comment: list[str]
    values: dict[str, Any]

    @property
    def summary(self) -> str:
        """The first line of the comment at the top."""
        return self.comment[0] if self.comment else ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"name": self.name, "verb": self.verb, "summary": self.summary, "values": self.values}

    def __rich__(self) -> "RenderableType":
        from rich.text import Text

        # Text isn't parsed as markup, in which [optimizer] is a style.
        lines = [f"# {line}".rstrip() for line in self.comment]
        return Text("\n".join([*lines, to_toml(self.values).rstrip()]), no_wrap=True, overflow="ignore")


@dataclass(frozen=True)
class RecipeList:
    """The packaged recipes."""

    recipes: list[RecipeReport]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
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
        return Group(*parts, "'lightbert recipes NAME' prints one.")


def describe(recipe: str) -> RecipeReport:
    """Read a recipe, packaged or a file."""
    values = recipes.read(recipe)
    return RecipeReport(recipe, next(iter(verbs_for(values)), ""), recipes.comment(recipe), values)


def run(name: str = "") -> RecipeReport | RecipeList:
    """Describe one recipe, or list the packaged recipes by command."""
    if name:
        return describe(name)
    listed = [describe(each) for each in recipes.names()]
    order = ["pretrain", "distill", "finetune"]
    return RecipeList(sorted(listed, key=lambda recipe: order.index(recipe.verb)))


def command(
    name: Annotated[str, typer.Argument(help="A recipe to print; lists all recipes if omitted.")] = "",
    json: AsJson = False,
) -> None:
    """List the packaged recipes, or print one as TOML, including the values of its parents.

    Your own recipe can extend one of them: parent = "convbert-small-rtd".
    """
    show(run(name), json=json)
