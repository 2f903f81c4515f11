"""A bounded, even sample of documents, for training a tokenizer."""

from collections.abc import Iterable

from lightbert.data.corpus.encoding import is_held_out, score, well_formed


def sample(documents: Iterable[str], characters: int, held_out: float) -> list[str]:
    """Keep about `characters` of the text, at most, spread evenly; documents that are held out are never in it.

    Which documents stay depends on their own hashes alone: each time there are too many, the half with the higher
    hashes goes, and what comes later has to be below as well.
    """
    kept: list[tuple[float, str]] = []
    total, bound = 0, 1.0
    for document in map(well_formed, documents):
        rank = score(document, b"sample")
        if rank >= bound or is_held_out(document, held_out):
            continue
        kept.append((rank, document))
        total += len(document)
        while total > characters and len(kept) > 1:
            bound /= 2
            kept = [(rank, text) for rank, text in kept if rank < bound] or [min(kept)]
            total = sum(len(text) for _, text in kept)
    return [text for _, text in kept]
