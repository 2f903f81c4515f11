"""``/v1/attention``: the attention maps and dynamic kernels of one layer, for looking at."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightbert.errors import InputError
from lightbert.serve.endpoints.endpoint import Prepared, as_example
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.forward import Runtime
from lightbert.tasks.texts import TextEncoder, text_features

MOST_TEXTS = 8
"""Per request: an answer has a number per head and pair of tokens."""
MOST_TOKENS = 128
"""Per text; longer texts are truncated."""
_DIGITS = 4


class Attention:
    """Returns the maps of the attention heads of a layer, and the kernels of its convolution heads."""

    name, key = "attention", "maps"
    takes = 'texts: "…", or pairs of texts: ["first", "second"]'
    example = "We can carry water in a can."

    def __init__(self, encoder: TextEncoder, runtimes: Sequence[Runtime]) -> None:
        self._encoder = TextEncoder(encoder.tokenizer, min(encoder.length, MOST_TOKENS))
        self._runtimes, self.runtime, self.specials = runtimes, runtimes[0], encoder.specials
        self.options: Mapping[str, tuple[int, int, int]] = {"layer": (1, 1, len(runtimes))}

    def prepare(self, texts: Sequence[Any], options: Mapping[str, int]) -> Prepared:
        """Tokenize the texts."""
        if len(texts) > MOST_TEXTS:
            raise InputError(f"/v1/attention takes at most {MOST_TEXTS} texts per request, got {len(texts):,}")
        layer = options["layer"]
        features = text_features([as_example(number, text) for number, text in enumerate(texts)], self._encoder, None)

        def finish(outputs: Outputs) -> list[Any]:
            rows = np.split(features.tokens, features.starts[1:-1])
            return [self._answer(layer, row.tolist(), *maps) for row, maps in zip(rows, outputs, strict=True)]

        return Prepared(features, finish, self._runtimes[layer - 1])

    def _answer(self, layer: int, ids: Sequence[int], attention: Any, kernels: Any) -> dict[str, Any]:
        """Maps [T, H, padded T] and kernels [T, H, K] of one text, by head."""
        tokens = [self._encoder.tokenizer.id_to_token(token) or "" for token in ids]
        return {
            "tokens": tokens,
            "layer": layer,
            "layers": len(self._runtimes),
            "attention": _by_head(attention[..., : len(tokens)]),
            "kernels": _by_head(kernels) if kernels.shape[-1] else [],
        }


def _by_head(values: Any) -> list[Any]:
    """[T, H, N] as lists [H][T][N] of rounded numbers."""
    rounded: list[Any] = np.round(values.astype(np.float64).transpose(1, 0, 2), _DIGITS).tolist()
    return rounded
