"""Lower layers learn more slowly: what a parameter's rate is multiplied by in fine-tuning (ELECTRA)."""

import re
from typing import Literal

_BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")


def layer_rate(name: str, depth: int, decay: float, depths: Literal["released", "corrected"] = "released") -> float:
    """The multiple for a parameter of a model with ``depth`` blocks: 1 for heads, decayed with each layer below.

    Deviation: "released" keeps an empty place above the top block, left by a pooler that was removed (electra#51):
    the top block has decay² instead of decay, and so on down to the embeddings. "corrected" closes the gap.
    """
    top = depth + (2 if depths == "released" else 1)
    block = _BLOCK.search(name)
    if block:
        return decay ** (top - int(block[1]) - 1)
    return decay**top if ".embeddings." in f".{name}" else 1.0
