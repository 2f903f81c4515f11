"""``/v1/embed``: vectors as of `lightbert embed`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightbert.serve.endpoints.endpoint import Prepared, as_example
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.vectors import Embedder, normalize_vectors
from lightbert.tasks.texts import text_features


class Embed:
    """Encodes texts and pairs of texts as vectors."""

    name, key = "embed", "vectors"
    takes = 'texts: "…", or pairs of texts: ["first", "second"]'
    example = "A quiet film, beautifully made, that stays with you."
    options: Mapping[str, tuple[int, int, int]] = {}

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.runtime, self.specials = embedder.runtime, embedder.encoder.specials

    def prepare(self, texts: Sequence[Any], options: Mapping[str, int]) -> Prepared:
        """Tokenize the texts."""
        examples = [as_example(number, text) for number, text in enumerate(texts)]

        def finish(outputs: Outputs) -> list[Any]:
            vectors = np.stack([each for (each,) in outputs])
            rows: list[Any] = (normalize_vectors(vectors) if self._embedder.normalize else vectors).tolist()
            return rows

        return Prepared(text_features(examples, self._embedder.encoder, None), finish)
