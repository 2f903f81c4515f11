"""The model card: README.md of a trained model's folder, with the front matter that the Hugging Face Hub reads."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightbert.config import keys, merge, nested, to_mapping
from lightbert.data.shards import Shards
from lightbert.interop.families import TEXT_HEADS
from lightbert.interop.huggingface import conversion
from lightbert.models import Model, folder
from lightbert.objectives import objective_class
from lightbert.recipes.toml import to_toml
from lightbert.train.run_folder import flatten
from lightbert.train.settings import BaseRecipe, CorpusRecipe, DistillRecipe, Recipe
from lightbert.train.step import Outcome

FAMILIES = {
    "bert": "BERT",
    "convbert": "ConvBERT",
    "composite": "Composite attention",
    "mobilebert": "MobileBERT",
}
_PIPELINES = {
    **dict.fromkeys(TEXT_HEADS, ("text-classification", "AutoModelForSequenceClassification")),
    "tokens": ("token-classification", "AutoModelForTokenClassification"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
    "beam": ("question-answering", "AutoModelForQuestionAnswering"),
    "mlm": ("fill-mask", "AutoModelForMaskedLM"),
}
"""Head -> the task of the Hub, and the class of transformers."""


@dataclass(frozen=True)
class ModelCard:
    """The content of a model card. Absolute paths are shortened to their last part, so that it can be published."""

    title: str
    summary: str
    head: str
    """The head that the model was trained with."""
    tags: tuple[str, ...]
    usage: str
    """Lines of Python that use `model`."""
    data: Mapping[str, str]
    command: Sequence[str]
    """The words of the command that trained the model; empty if it wasn't trained by a command."""
    recipe: BaseRecipe
    metrics: Mapping[str, float]
    evaluated_on: str
    baseline: Mapping[str, float] = field(default_factory=dict)
    """The same metrics for predictions that ignore the texts."""
    verdict: str = ""
    dataset: str = ""
    """The name of the task in the evaluation results of the Hub; "" = leave them out."""

    def render(self, model: Model) -> str:
        """Return the card of a model as Markdown."""
        parts = [
            self._front_matter(model),
            f"# {self.title}",
            self.summary,
            *("## How to use it", self._usage(model)),
            *("## Data", _table(("data", ""), *self.data.items())),
            *("## Training", self._training()),
            "## Metrics",
            self._metrics(),
            *([self.verdict] if self.verdict else []),
        ]
        return "\n\n".join(parts) + "\n"

    def _front_matter(self, model: Model) -> str:
        pipeline = _PIPELINES.get(self.head, ("feature-extraction", ""))[0]
        family = folder.description(model)["family"]
        lines = [
            "library_name: lightbert",
            f"pipeline_tag: {pipeline}",
            "tags:",
            *(f"- {tag}" for tag in dict.fromkeys(("lightbert", family, *self.tags))),
        ]
        if self.dataset and self.metrics:
            values = [{"type": name, "value": round(value, 6)} for name, value in self.metrics.items()]
            result = {
                "task": {"type": pipeline},
                "dataset": {"name": self.dataset, "type": self.dataset, "split": self.evaluated_on},
                "metrics": values,
            }
            # JSON is valid YAML.
            lines += ["model-index:", f"- name: {json.dumps(self.title)}", f"  results: {json.dumps([result])}"]
        return "\n".join(["---", *lines, "---"])

    def _usage(self, model: Model) -> str:
        lines = ["```python", "import lightbert", "", 'model = lightbert.load("FOLDER")  # the folder of this file']
        parts = ["\n".join([*lines, self.usage, "```"])]
        name, options = conversion(model)
        if name:
            # ConvBertForMaskedLM is loaded by AutoModelForMaskedLM, ConvBertModel by AutoModel.
            auto = f"AutoModel{name[name.find('For') :]}" if "For" in name else "AutoModel"
            convert = " ".join(["lightbert convert FOLDER HF_FOLDER --to hf", *options])
            parts += [
                f"`lightbert convert` writes a folder that transformers reads as `{name}`:",
                f"```sh\n{convert}\n```",
                f'```python\nfrom transformers import {auto}\n\nmodel = {auto}.from_pretrained("HF_FOLDER")\n```',
            ]
        else:
            auto = _PIPELINES.get(self.head, ("", "AutoModel"))[1]
            parts.append(
                f"transformers has no class for this model. After `import lightbert`, `{auto}.from_pretrained(FOLDER)` "
                "loads this folder as it is."
            )
        return "\n\n".join(parts)

    def _metrics(self) -> str:
        if not self.metrics:
            return "The model was not evaluated."
        titles = (f"metric on {self.evaluated_on}", "value", "baseline")
        baseline = {name: f"{value:.4f}" for name, value in self.baseline.items()}
        rows = [(name, f"{value:.4f}", baseline.get(name, "")) for name, value in self.metrics.items()]
        columns = 3 if baseline else 2
        return _table(titles[:columns], *(row[:columns] for row in rows))

    def _training(self) -> str:
        parts = []
        if self.command:
            parts.append(f"```sh\n{shlex.join(_publish_word(word) for word in self.command)}\n```")
        parts += [
            "The recipe; all other keys have their default values:",
            f"```toml\n{to_toml(publish(changed_keys(self.recipe)))}```",
        ]
        return "\n\n".join(parts)


def changed_keys(recipe: BaseRecipe) -> dict[str, Any]:
    """The keys of a recipe that don't have their default value, as nested tables."""
    defaults = {key.name: key.default for key in keys(type(recipe))}
    changed: dict[str, Any] = {}
    for name, value in flatten(to_mapping(recipe)):
        if value is None or (name in defaults and value == defaults[name]):
            continue
        changed = merge(changed, nested(name.split("."), value))
    return changed


def publish(value: Any) -> Any:
    """Shorten absolute paths, also inside tables and lists, to their last part."""
    if isinstance(value, Mapping):
        return {key: publish(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [publish(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def size_of(model: Model) -> str:
    """The family and the number of parameters, for the summary."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return f"{FAMILIES[folder.description(model)['family']]} with {parameters:,} parameters"


def _publish_word(word: str) -> str:
    key, equals, value = word.partition("=")
    return f"{key}={publish(value)}" if equals else str(publish(word))


def _table(titles: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def corpus_card(recipe: CorpusRecipe, outcome: Outcome, model: Model, shards: Shards, command: Sequence[str]) -> str:
    """Return the card of the trained model."""
    objective = recipe.objective if isinstance(recipe, Recipe) else "mlm"
    title = objective_class(objective).title
    how = f"pre-trained by {title}"
    if isinstance(recipe, DistillRecipe):
        how = f"distilled from {publish(recipe.teacher)}" if recipe.needs_teacher else "trained without a teacher"
    size = size_of(model)
    held_out = sum(record.documents for record in shards.manifest.shards if record.split == "held-out")
    return ModelCard(
        title=f"{size.partition(' with ')[0]} encoder, {how}",
        summary=(
            f"{size}, {how} for {outcome.step:,} steps. It encodes texts as vectors, and is a starting point for "
            "fine-tuning."
        ),
        head=objective,
        tags=(
            title.replace(" ", "-"),
            *(["distillation"] if isinstance(recipe, DistillRecipe) else []),
        ),
        usage='model.encode(["some text", "another one"])  # one vector per text',
        data={
            "prepared folder": str(publish(recipe.data)),
            "sources": ", ".join(map(str, publish(shards.manifest.settings.get("sources", [])))),
            "documents": f"{shards.n_documents:,}, and {held_out:,} held out",
            "sentences": f"{shards.n_sentences:,}",
            "tokens": f"{shards.n_tokens:,}",
            "vocabulary": f"{shards.vocab:,}",
        },
        command=command,
        recipe=recipe,
        metrics={name: value for name, value in outcome.held_out.items() if not name[-1].isdigit()},
        evaluated_on="held-out text",
        verdict=outcome.verdict,
    ).render(model)
