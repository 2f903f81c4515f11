"""A model with the same weights and some fields of its config changed, such as dropout, padding or depth."""

from dataclasses import replace
from typing import Any

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.models import Model, build
from lightbert.models.folder import difference


def with_changes(model: Model, change: dict[str, Any]) -> Model:
    """Rebuild the model with a changed config; raise an InputError if the weights don't match it.

    A model with a smaller depth has the first blocks of the model.
    """
    config = from_mapping(type(model.config), {**to_mapping(model.config), **change})
    changed = build(config, heads=model.head_settings)
    removed = tuple(f"blocks.{index}." for index in range(config.depth, len(model.blocks)))
    kept = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(removed)}
    if problem := difference(kept, changed.state_dict()):
        raise InputError(
            f"the weights don't match the config after change = {change}: {problem}; change only fields that no weight "
            "depends on, or choose a smaller depth"
        )
    changed.load_state_dict(kept)
    ranges = {name: values for name, values in model.ranges.items() if not name.startswith(removed)}
    changed.metadata = replace(model.metadata, config=config, ranges=ranges)
    return changed
