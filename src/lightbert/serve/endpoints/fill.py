"""``/v1/fill``: the most probable tokens for each [MASK] of a text, from a masked language modelling head."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.serve.endpoints.endpoint import Prepared, require_strings
from lightbert.tasks.kinds.kind import Outputs, softmax
from lightbert.tasks.predict.forward import Array, Arrays, Runtime
from lightbert.tasks.texts import TextEncoder

MASK = "[MASK]"
MOST = 50
"""The maximum number of candidates per mask."""
_MOST_CANDIDATES = 20_480
# Logits have one value per token and vocabulary entry, so that their batches are smaller than those of other heads.
_BATCH_TOKENS = (256, 1024)


class Fill:
    """Proposes tokens for each mask of a text, most probable first."""

    name, key = "fill", "fills"
    takes = 'texts with [MASK]: "The [MASK] is red."'
    example = "The [MASK] of the function is a list of strings."
    options: Mapping[str, tuple[int, int, int]] = {"top": (5, 1, MOST)}

    def __init__(self, encoder: TextEncoder, runtime: Runtime) -> None:
        self._encoder, self.specials = encoder, encoder.specials
        self.runtime = _TopTokens(runtime, encoder.specials.mask)

    def prepare(self, texts: Sequence[Any], options: Mapping[str, int]) -> Prepared:
        """Tokenize the texts, each of which must contain [MASK]."""
        strings, top = require_strings(texts), options["top"]
        masks = sum(text.count(MASK) for text in strings)
        if masks * top > _MOST_CANDIDATES:
            raise InputError(
                f"the number of {MASK} times 'top' must be at most {_MOST_CANDIDATES:,} per request, got {masks:,} "
                f"times {top}; send several requests"
            )
        masked = [self._tokenize(number, text) for number, text in enumerate(strings)]
        rows = [self._encoder.row(each.ids) for each in masked]
        cut = sum(len(each.ids) + 2 > len(row) for each, (row, _) in zip(masked, rows, strict=True))

        def finish(outputs: Outputs) -> list[Any]:
            return [
                {
                    "text": text,
                    # The first output is that of [CLS].
                    "masks": [self._mask(start, ids[at + 1], shares[at + 1], top) for at, start in each.masks.items()],
                }
                for text, each, (ids, shares) in zip(strings, masked, outputs, strict=True)
            ]

        return Prepared(Features.of([row for row, _ in rows], [end for _, end in rows], cut=cut), finish)

    def _tokenize(self, number: int, text: str) -> "_MaskedText":
        """Tokenize what is between the masks; not every tokenizer reads "[MASK]" as one token."""
        parts, ids, masks, start = text.split(MASK), list[int](), dict[int, int](), 0
        if len(parts) == 1:
            raise InputError(f"texts[{number}] must contain {MASK} where a word is to be filled in")
        for part, pieces in zip(parts, self._encoder.pieces(parts), strict=True):
            ids += [*pieces.ids, self.specials.mask]
            start += len(part)
            masks[len(ids) - 1] = start
            start += len(MASK)
        # The last part is not followed by a mask.
        end, _ = masks.popitem()
        if max(masks) >= self._encoder.length - 2:
            raise InputError(
                f"texts[{number}] must have each {MASK} within its first {self._encoder.length - 2} tokens; shorten it"
            )
        return _MaskedText(ids[:end], masks)

    def _mask(self, start: int, ids: Any, shares: Any, top: int) -> dict[str, Any]:
        tokens = [self._encoder.tokenizer.id_to_token(int(each)) or "" for each in ids[:top]]
        candidates = [
            {"token": token, "probability": share} for token, share in zip(tokens, shares.tolist(), strict=False)
        ]
        return {"start": start, "end": start + len(MASK), "candidates": candidates}


@dataclass(frozen=True)
class _MaskedText:
    """The tokens of a text, and the place of each mask among them -> its first character in the text."""

    ids: list[int]
    masks: dict[int, int]


class _TopTokens:
    """Runs an MLM head and keeps the best entries of the vocabulary at the masks: ids and probabilities [B, T, K]."""

    def __init__(self, runtime: Runtime, mask: int) -> None:
        self._runtime, self._mask = runtime, mask
        self.head, self.reads_padding, self.chunk = runtime.head, runtime.reads_padding, runtime.chunk
        self.batch_tokens = _BATCH_TOKENS

    def running(self) -> AbstractContextManager[object]:
        return self._runtime.running()

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        wait = self._runtime.submit(ids, mask, segments)

        def top_tokens() -> Arrays:
            (logits,) = wait()  # [B, T, V]
            at = ids == self._mask
            shares = softmax(logits[at])  # [masks, V]
            # Sorting only the best is several times as fast.
            best = np.argpartition(-shares, min(MOST, shares.shape[-1]) - 1, axis=-1)[:, :MOST]
            ranks = np.argsort(-np.take_along_axis(shares, best, axis=-1), axis=-1, kind="stable")
            order = np.take_along_axis(best, ranks, axis=-1)
            tokens = np.zeros((*ids.shape, order.shape[-1]), dtype=np.int64)
            probabilities = np.zeros(tokens.shape)
            tokens[at], probabilities[at] = order, np.take_along_axis(shares, order, axis=-1)
            return tokens, probabilities

        return top_tokens
