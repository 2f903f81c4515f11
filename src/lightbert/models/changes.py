"""A model with the same weights and some fields of its config changed, such as dropout or padding."""

from dataclasses import replace
from typing import Any

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.models import Model, build


def with_changes(model: Model, change: dict[str, Any]) -> Model:
    """Rebuild the model with a changed config; raise an InputError if the weights don't match it."""
    config = from_mapping(type(model.config), {**to_mapping(model.config), **change})
    changed = build(config, heads=model.head_settings)
    try:
        changed.load_state_dict(model.state_dict())
    except RuntimeError as error:
        raise InputError(f"the weights don't match the config after change = {change}: {error}") from None
    changed.metadata = replace(model.metadata, config=config)
    return changed
