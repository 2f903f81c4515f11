"""``/v1/suspicion``: the probability of each word that it was replaced, from a replaced-token detection head."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lightbert.serve.endpoints.endpoint import Prepared, require_strings
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.forward import Runtime
from lightbert.tasks.texts import TextEncoder, text_features

if TYPE_CHECKING:
    from tokenizers import Encoding


class Suspicion:
    """Scores the words of a text; the suspicion of a word is the highest of its tokens."""

    name, key = "suspicion", "suspicions"
    takes = 'texts: "…"'
    example = "The chef cooked the meal and the guests translated it at once."
    options: Mapping[str, tuple[int, int, int]] = {}

    def __init__(self, encoder: TextEncoder, runtime: Runtime) -> None:
        self._encoder, self.runtime, self.specials = encoder, runtime, encoder.specials

    def prepare(self, texts: Sequence[Any], options: Mapping[str, int]) -> Prepared:
        """Tokenize the texts."""
        strings = require_strings(texts)
        pieces = self._encoder.pieces(strings)

        def finish(outputs: Outputs) -> list[Any]:
            return [
                # The first output is that of [CLS]; words beyond the maximum length have none.
                {"text": text, "words": _words(text, encoding, 1 / (1 + np.exp(-logits[1:-1].astype(np.float64))))}
                for text, encoding, (logits,) in zip(strings, pieces, outputs, strict=True)
            ]

        return Prepared(text_features([Example(text) for text in strings], self._encoder, None), finish)


def _words(text: str, encoding: "Encoding", probabilities: Any) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = []
    last: int | None = None
    tokens = zip(encoding.word_ids, encoding.offsets, probabilities.tolist(), strict=False)
    for number, (start, end), probability in tokens:
        if words and number is not None and number == last:
            words[-1] |= {"end": end, "suspicion": max(words[-1]["suspicion"], probability)}
        else:
            words.append({"text": "", "start": start, "end": end, "suspicion": probability})
        last = number
    return [{**word, "text": text[word["start"] : word["end"]]} for word in words]
