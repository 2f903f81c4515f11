"""Streams, parts and chunks."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.corpus import parts
from lightbert.data.corpus.parts import Chunk, Place, read_stream, split_chunks
from lightbert.data.text.sources import Source

DOCUMENTS = st.lists(st.integers(1, 30).map("x".__mul__), max_size=40)


def parts_of(chunks: list[Chunk[int]]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for chunk in chunks:
        found[-1] += chunk.documents
        if chunk.ends_part:
            found.append([])
    return [part for part in found if part]


@given(DOCUMENTS, st.integers(1, 200), st.integers(1, 100), st.integers(1, 100))
def test_parts_do_not_depend_on_the_size_of_chunks(documents: list[str], characters: int, one: int, other: int) -> None:
    results = []
    for size in (one, other):
        with mock.patch.object(parts, "CHUNK", size):
            results.append(parts_of(list(split_chunks(((text, 0) for text in documents), characters))))
    assert results[0] == results[1]
    assert [text for part in results[0] for text in part] == documents
    assert all(sum(map(len, part)) >= characters > sum(map(len, part[:-1])) for part in results[0][:-1])


@given(DOCUMENTS, st.integers(1, 100))
def test_a_chunk_has_the_mark_of_its_last_document(documents: list[str], characters: int) -> None:
    marks = [
        chunk.mark for chunk in split_chunks(((text, number) for number, text in enumerate(documents)), characters)
    ]
    assert marks == sorted(marks)
    assert marks[-1:] == ([len(documents) - 1] if documents else [])


def test_a_stream_resumes_from_any_position() -> None:
    sources = [Source("a", "file", 10), Source("b", "file", 20), Source("c", "file", 30)]
    texts = {"a": [("a1", 5), ("a2", 10)], "b": [], "c": [("c1", 30)]}

    def read(source: Source):
        return iter(texts[source.name])

    everything = list(read_stream(sources, read, Place()))
    assert everything == [("a1", Place(0, 1, 5)), ("a2", Place(0, 2, 10)), ("c1", Place(2, 1, 60))]
    for number, (_, place) in enumerate(everything, start=1):
        assert list(read_stream(sources, read, place)) == everything[number:]
