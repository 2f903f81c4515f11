"""The generator that replaced-token detection starts with: a trained one, or random weights."""

from pathlib import Path

from lightbert.errors import InputError
from lightbert.interop.names import Preset, find
from lightbert.models import Model, build, folder
from lightbert.models.generator import generator
from lightbert.ops.randomness import named
from lightbert.train.recipe import Recipe

NONE = "none"


def starting_generator(recipe: Recipe, discriminator: Model) -> Model:
    """Load the generator that belongs to the discriminator, or build one with weights drawn from the seed."""
    config = generator(discriminator.config, recipe.generator)
    path = find_generator(recipe)
    if path is None:
        # Generator and discriminator have the same parameter names: with one seed they would get the same weights.
        return build(config, heads={"mlm": {}}, seed=named(recipe.seed, "generator"))
    model = folder.load(path).train()
    if model.config != config or "mlm" not in model.heads:
        raise InputError(
            f"the generator '{path}' must have the size that generator={recipe.generator} gives for '{recipe.model}', "
            f"and an mlm head; set generator= to its size, or generator_model={NONE} to start with a new one"
        )
    return model


def find_generator(recipe: Recipe) -> Path | None:
    """Return the folder of the generator: the given one, or the one next to the model; None for random weights."""
    if recipe.generator_model == NONE:
        return None
    if recipe.generator_model:
        return Path(recipe.generator_model)
    if isinstance(find(recipe.model), Preset):
        return None
    beside = Path(recipe.model).resolve().parent / "generator"
    return beside if (beside / "config.json").is_file() else None


def describe_generator(recipe: Recipe) -> str:
    """Say which generator a run starts with."""
    path = find_generator(recipe)
    return "random weights" if path is None else f"'{path}'"
