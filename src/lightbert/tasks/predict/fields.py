"""The names of the input fields of a record, by default those of the table that the model was fine-tuned on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lightbert.errors import listed


@dataclass(frozen=True)
class Fields:
    """The possible names of the input fields, in order of preference."""

    text: tuple[str, ...] = ("text",)
    text_b: tuple[str, ...] = ("text_b",)
    words: tuple[str, ...] = ("words",)
    pairs: bool = False
    """Whether the second text is required."""

    @classmethod
    def of(
        cls, task: Mapping[str, Any], text: str | None = None, text_b: str | None = None, *, allow_pairs: bool = False
    ) -> "Fields":
        """The given names, or those of the table that the model was fine-tuned on, or the default names.

        task: the `task` of the model. With a model for single texts, a second text is read only if its field is given,
        or with `allow_pairs`.
        """
        data, pairs = task.get("data", {}), task.get("pairs")
        names = {field: _distinct(data.get(field) or field, field) for field in ("text", "text_b", "words")}
        if text is not None:
            names["text"] = (text,)
        if text_b:
            names["text_b"] = (text_b,)
        elif text_b == "" or (pairs is False and not allow_pairs):
            names["text_b"] = ()
        return cls(**names, pairs=bool(text_b or (pairs and names["text_b"])))

    def names(self, present: Collection[str]) -> dict[str, str]:
        """The name of each input field in a record; "" if the record doesn't have it."""
        return {
            field: next((name for name in getattr(self, field) if name in present), "")
            for field in ("text", "text_b", "words")
        }

    def missing(self, present: Collection[str], kind: str) -> str:
        """Describe the first missing field that the kind of task requires, and the remedy; "" if none is missing."""
        found = self.names(present)
        if kind == "spans":
            required = dict.fromkeys(("question", "context"), "rename one of them")
            required = {field: remedy for field, remedy in required.items() if field not in present}
        elif found["text"] or (kind == "tokens" and found["words"]):
            required = {self.text_b[0]: "set its name with --text-b"} if self.pairs and not found["text_b"] else {}
        else:
            required = {self.text[0]: "set its name with --text"}
        for field, remedy in required.items():
            return f"{field!r}, only {listed(map(repr, present)) or 'nothing'}; {remedy}"
        return ""


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
