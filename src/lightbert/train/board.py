"""The same numbers as metrics.jsonl, for TensorBoard."""

from pathlib import Path
from typing import Any

from lightbert.errors import InputError


class Board:
    """Writes scalars to ``folder``; on resuming, TensorBoard forgets what came after the checkpoint."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("tensorboard = true needs the package: pip install 'lightbert[track]'") from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Add the numbers of one line of the log."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()
