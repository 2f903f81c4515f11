"""The model card of a model that was pre-trained or distilled on prepared text."""

from collections.abc import Sequence

from lightbert.data.shards import Shards
from lightbert.models import Model
from lightbert.train.corpus_recipe import CorpusRecipe
from lightbert.train.distill_recipe import DistillRecipe
from lightbert.train.model_card import ModelCard, publish, size_of
from lightbert.train.recipe import Recipe
from lightbert.train.run import Outcome

_OBJECTIVES = {"rtd": "replaced-token detection", "mlm": "masked-language modelling"}


def corpus_card(recipe: CorpusRecipe, outcome: Outcome, model: Model, shards: Shards, command: Sequence[str]) -> str:
    """Return the card of the trained model."""
    objective = recipe.objective if isinstance(recipe, Recipe) else "mlm"
    how = _how(recipe)
    size = size_of(model)
    return ModelCard(
        title=f"{size.partition(' with ')[0]} encoder, {how}",
        summary=(
            f"{size}, {how} for {outcome.step:,} steps. It encodes texts as vectors, and is a starting point for "
            "fine-tuning."
        ),
        head=objective,
        tags=(
            _OBJECTIVES[objective].replace(" ", "-"),
            *(["distillation"] if isinstance(recipe, DistillRecipe) else []),
        ),
        usage='model.encode(["some text", "another one"])  # one vector per text',
        data=_data(recipe, shards),
        command=command,
        recipe=recipe,
        metrics={name: value for name, value in outcome.held_out.items() if not name[-1].isdigit()},
        evaluated_on="held-out text",
        verdict=outcome.verdict,
    ).render(model)


def _how(recipe: CorpusRecipe) -> str:
    if isinstance(recipe, DistillRecipe):
        return f"distilled from {publish(recipe.teacher)}" if recipe.needs_teacher else "trained without a teacher"
    assert isinstance(recipe, Recipe)
    return f"pre-trained by {_OBJECTIVES[recipe.objective]}"


def _data(recipe: CorpusRecipe, shards: Shards) -> dict[str, str]:
    sources = shards.manifest.settings.get("sources", [])
    held_out = sum(record.documents for record in shards.manifest.shards if record.split == "held-out")
    return {
        "prepared folder": str(publish(recipe.data)),
        "sources": ", ".join(str(publish(source)) for source in sources),
        "documents": f"{shards.n_documents:,}, and {held_out:,} held out",
        "sentences": f"{shards.n_sentences:,}",
        "tokens": f"{shards.n_tokens:,}",
        "vocabulary": f"{shards.vocab:,}",
    }
