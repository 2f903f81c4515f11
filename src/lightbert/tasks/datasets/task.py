"""A task: what is asked, and where its examples are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lightbert.errors import unknown
from lightbert.tasks.kinds.kind import Kind


@dataclass(frozen=True)
class Task:
    """A kind of question with its data; what a recipe's ``task`` becomes."""

    name: str
    kind: Kind[Any]
    splits: Mapping[str, Callable[[], list[Any]]]
    """"train", "dev", "test" and others, such as "dev_mismatched": each is read when it is called."""
    metric: str
    """Which of the kind's numbers runs are compared by: ConvBERT's choice where it reports the task."""
    symmetric: bool = False
    """Whether a pair means the same in either order, so that training data may be doubled by swapping."""

    def examples(self, split: str) -> list[Any]:
        """Read one split."""
        if split not in self.splits:
            raise unknown(f"split of the task {self.name!r}", split, self.splits)
        return self.splits[split]()
