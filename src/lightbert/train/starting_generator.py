"""The generator that replaced-token detection starts with: a trained one, or random weights."""

from lightbert.errors import InputError
from lightbert.interop.load import read
from lightbert.interop.names import ModelFolder, find, generator_of
from lightbert.models import Model, build
from lightbert.models.generator import generator
from lightbert.ops.randomness import named
from lightbert.train.recipe import Recipe
from lightbert.train.starting_model import with_dropout_of

NONE = "none"


def starting_generator(recipe: Recipe, discriminator: Model) -> Model:
    """Load the generator that belongs to the discriminator, or build one with weights drawn from the seed."""
    config = generator(discriminator.config, recipe.generator)
    found = find_generator(recipe)
    if found is None:
        # Generator and discriminator have the same parameter names: with one seed they would get the same weights.
        return build(config, heads={"mlm": {}}, seed=named(recipe.seed, "generator"))
    model = with_dropout_of(config, read(found)).train()
    if model.config != config or "mlm" not in model.heads:
        raise InputError(
            f"the generator '{found.name}' must have the size that generator={recipe.generator} gives for "
            f"'{recipe.model}', and an mlm head; set generator= to its size, or generator_model={NONE} to start with a "
            "new one"
        )
    return model


def find_generator(recipe: Recipe) -> ModelFolder | None:
    """Return the generator: the given one, or the one in the model's folder or next to it; None for random weights."""
    if recipe.generator_model == NONE:
        return None
    if recipe.generator_model:
        return _folder(recipe.generator_model)
    return generator_of(find(recipe.model))


def describe_generator(recipe: Recipe) -> str:
    """Say which generator a run starts with."""
    found = find_generator(recipe)
    return "random weights" if found is None else f"'{found.name}'"


def _folder(name: str) -> ModelFolder:
    found = find(name)
    if not isinstance(found, ModelFolder):
        raise InputError(f"generator_model must be a trained model, got '{name}'; give its folder, or {NONE}")
    return found
