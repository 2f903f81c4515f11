"""Our config.json as a transformers config; registered with AutoConfig on import. Only `interop.hook` imports this."""

import copy
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from transformers import AutoConfig, PreTrainedConfig

from lightbert.interop.heads import default_label_names, read_problem, text_head, write_problem

_WITH_LABELS = ("classify", "tokens")


class LightbertConfig(PreTrainedConfig):  # type: ignore[misc]
    """Reads and writes our config.json unchanged.

    transformers' names (`hidden_size`, …) are properties; only `vocab_size` can be set, by resized embeddings.
    """

    model_type = "lightbert"
    on_open: ClassVar[Callable[[], object]] = lambda: None
    """Called when a config is opened, to register the models before the auto classes look them up."""

    format: int = 1
    family: str = "bert"
    config: dict[str, Any] = field(default_factory=dict)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    task: dict[str, Any] = field(default_factory=dict)
    origin: str = ""
    id2label: Any = None
    label2id: Any = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.id2label is None and "num_labels" not in kwargs:
            names = self.labels or default_label_names(self._outputs())
            self.id2label = dict(enumerate(names))
            self.label2id = {name: index for index, name in enumerate(names)}
        super().__post_init__(**kwargs)
        type(self).on_open()

    def with_heads(self, heads: dict[str, dict[str, Any]]) -> "LightbertConfig":
        """Return a copy for a model with exactly these heads, with a matching `task` and `problem_type`."""
        other = copy.deepcopy(self)
        names = tuple(self.id2label.values())
        unnamed = names == default_label_names(len(names)) or not heads.keys() & set(_WITH_LABELS)
        other.heads, other.labels = heads, [] if unnamed else list(names)
        same = heads == self.heads and self.problem_type in (None, write_problem(heads, self.task))
        other.task = self.task if same else read_problem(self.problem_type, heads, tuple(other.labels))
        other.problem_type = write_problem(heads, other.task)
        return other

    def description(self) -> dict[str, Any]:
        """Return the content of config.json."""
        content = {
            "format": self.format,
            "model_type": self.model_type,
            "family": self.family,
            "config": self.config,
            "heads": self.heads,
        }
        return content | {key: value for key in ("labels", "task", "origin") if (value := getattr(self, key))}

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what transformers writes to config.json."""
        return self.description()

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return int(self.config["vocab"])

    @vocab_size.setter
    def vocab_size(self, vocab: int) -> None:
        self.config["vocab"] = vocab

    @property
    def hidden_size(self) -> int:
        """The width of the states."""
        return int(self.config["width"])

    @property
    def num_hidden_layers(self) -> int:
        """The number of blocks."""
        return int(self.config["depth"])

    @property
    def num_attention_heads(self) -> int:
        """The number of heads per block."""
        return int(self.config["n_heads"])

    @property
    def max_position_embeddings(self) -> int:
        """The maximum number of tokens, 0 if unlimited."""
        return int(self.config["positions"])

    def _outputs(self) -> int:
        """Return the number of labels; without a head that has labels it is 2, transformers' default."""
        counts = [self.heads[kind]["labels"] for kind in _WITH_LABELS if kind in self.heads]
        return counts[0] if counts else 1 if text_head(1) in self.heads else 2


AutoConfig.register(LightbertConfig.model_type, LightbertConfig, exist_ok=True)
