"""An example that is shown because of what a model said about it."""

from typing import Any

from lightbert.tasks.example import Example


def of_text(example: Example) -> dict[str, Any]:
    """Plain values: where the example comes from, and its texts."""
    values = {"id": example.id, "text": example.text}
    return values if example.text_b is None else {**values, "text_b": example.text_b}


def shown_text(example: Example) -> str:
    """Both texts of a pair in one line."""
    return example.text if example.text_b is None else f"{example.text} ⏐ {example.text_b}"
