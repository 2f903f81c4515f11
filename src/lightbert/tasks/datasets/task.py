"""A task: its kind, data and main metric."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightbert.errors import unknown
from lightbert.tasks.example import Examples
from lightbert.tasks.kinds.kind import Kind


@dataclass(frozen=True)
class Task:
    """A kind of task with its data."""

    name: str
    kind: Kind[Any]
    splits: Mapping[str, Callable[[], list[Any]]]
    """"train", "dev", "test" and others, such as "dev_mismatched", with a function that reads the split.

    `Examples` count the bad rows that were skipped; in any other list there are none.
    """
    metric: str
    """The metric that ranks runs: ConvBERT's choice for the tasks it reports."""
    symmetric: bool = False
    """Whether pairs are symmetric, so that swapping them doubles the training data."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """How custom files are read, to be saved with a model: `Files.reading`. Empty for named tasks."""

    def examples(self, split: str) -> Examples[Any]:
        """Read one split."""
        if split not in self.splits:
            raise unknown(f"split of the task {self.name!r}", split, self.splits)
        found = self.splits[split]()
        return found if isinstance(found, Examples) else Examples(found)
