"""Evaluation of vectors: similarity and ranks of pairs of texts, clusters, retrieval of BEIR folders beside BM25."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightbert.data.tables import Table, TableOptions, table_format
from lightbert.data.text_files import BadRows
from lightbert.errors import InputError, required, unknown
from lightbert.tasks.datasets.glue import open_glue
from lightbert.tasks.datasets.own import read_training_texts
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.datasets.pairs import read_pairs
from lightbert.tasks.example import Example, Examples
from lightbert.tasks.kinds import kind
from lightbert.tasks.kinds.kind import parse_number
from lightbert.tasks.kinds.vectors import Vectors
from lightbert.tasks.predict.neighbours import cluster, nearest, v_measure
from lightbert.tasks.predict.predictor import Described
from lightbert.tasks.predict.vectors import DOCUMENTS, QUERIES, Floats, unit_embedder

if TYPE_CHECKING:
    from rich.console import RenderableType

CUTOFF = 100
"""The number of documents that are ranked for each query."""

# The columns in the files of STS-B, after those of our own tables.
_COLUMNS = {"text": ("text", "sentence1"), "text_b": ("text_b", "sentence2"), "label": ("label", "score")}

Ranking = list[list[str]]
"""For each query the ids of documents, the best one first."""
Relevant = dict[str, dict[str, float]]
"""The id of each query -> the relevant documents, with their gains."""


@dataclass
class Encoding:
    """Encodes texts as vectors of length 1, and adds up the time that it takes."""

    model: Described
    batch: int = 0
    seconds: float = 0.0

    def __call__(self, texts: Iterable[str], prompts: Sequence[str] = ()) -> Floats:
        """Encode texts with the first of these prompts that the model has, or else its default prompt."""
        start = time.perf_counter()
        vectors = unit_embedder(self.model, prompts, self.batch).encode(texts)
        self.seconds += time.perf_counter() - start
        return vectors


@dataclass(frozen=True)
class VectorEvaluation:
    """The metrics of a model on a task for vectors."""

    task: str
    model: str
    data: str
    metrics: dict[str, float]
    counts: dict[str, int]
    seconds: float = 0.0
    """The time in which the texts were encoded."""
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    """The metrics of other methods on the same data."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        names = ("task", "model", "data", "metrics", "baselines", "seconds")
        return {**{name: getattr(self, name) for name in names}, **self.counts}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        rows: list[tuple[kind.Cell, ...]] = [
            (name, value, *(row[name] for row in self.baselines.values())) for name, value in self.metrics.items()
        ]
        table = kind.Table(f"{self.task}, {Path(self.data).name}", ("metric", "value", *self.baselines), rows)
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return Group(table, f"{counts}; encoded in {self.seconds:.1f} s", *([self.note] if self.note else []))


def evaluate_vectors(
    task: str,
    model: Described,
    files: Files,
    *,
    split: str = "dev",
    columns: Mapping[str, str | None] | None = None,
    batch: int = 0,
    name: str = "",
) -> VectorEvaluation:
    """Evaluate a model on one of the `TASKS`.

    files: `files.dev` is the table or folder. columns: the names of its columns "text", "text_b" and "label", if given.
    """
    if task in _TABLES and not Path(files.dev).is_dir():
        files = replace(files, **_columns(files, _TABLES[task], dict(columns or {})))
    encode = Encoding(model, batch)
    result = TASKS[task](encode, files, split)
    return replace(result, model=name, data=files.dev, seconds=encode.seconds)


def _columns(files: Files, keys: Sequence[str], columns: dict[str, str | None]) -> dict[str, Any]:
    """The names of the columns: those given, or else those of our own tables or of STS-B."""
    known, names = Table(files.dev, options=files.table_options()).columns(), {}
    for key in keys:
        names[key] = columns.get(key) or next((name for name in _COLUMNS[key] if name in known), "")
        if names[key] not in known:
            raise InputError(
                f"'{files.dev}' must have a column for data.{key}, got the columns {', '.join(known)}; "
                f"add data.{key}=COLUMN"
            )
    return names


def evaluate_sts(encode: Encoding, files: Files, split: str) -> VectorEvaluation:
    """Correlate the cosines of pairs of texts with their scores: a table, such as a file of STS-B, or GLUE's folder."""
    examples: Examples[Example]
    if Path(files.dev).is_dir():
        examples = open_glue("stsb", files.dev, bad_rows=files.bad_rows).examples(split)
        if any(example.label is None for example in examples):
            raise InputError(f"the split {split!r} of STS-B in '{files.dev}' has no scores; choose another --split")
    else:
        examples = read_pairs(files.dev, files, "graded")
    return _of_pairs("sts", Vectors("graded"), examples, encode)


def evaluate_pairs(encode: Encoding, files: Files, split: str) -> VectorEvaluation:
    """Rank the second text of each pair among those of all pairs, by the cosine with the first one."""
    return _of_pairs("pairs", Vectors("pairs"), read_pairs(files.dev, files, "pairs"), encode, QUERIES, DOCUMENTS)


def _of_pairs(
    task: str, vectors: Vectors, examples: Examples[Example], encode: Encoding, *prompts: Sequence[str]
) -> VectorEvaluation:
    sides = [[example.text for example in examples], [example.text_b or "" for example in examples]]
    if prompts:
        first, second = (encode(texts, names) for texts, names in zip(sides, prompts, strict=True))
    else:
        texts = list(dict.fromkeys(sides[0] + sides[1]))
        places, distinct = {text: place for place, text in enumerate(texts)}, encode(texts)
        first, second = (distinct[[places[text] for text in side]] for side in sides)
    found = vectors.metrics(examples, vectors.predictions_of(first, second))
    return VectorEvaluation(task, "", "", found, {"pairs": len(examples), "skipped": examples.skipped})


def evaluate_clustering(encode: Encoding, files: Files, split: str) -> VectorEvaluation:
    """Compare clusters of the texts of a table, as many as there are labels, with the labels."""
    kind, examples = read_training_texts(files.dev, replace(files, kind="classify"))
    labels = [str(example.label) for example in examples]
    count = kind.head_settings()["labels"]
    numbers, _ = cluster(encode(example.text for example in examples), count)
    counts = {"texts": len(examples), "labels": count, "skipped": examples.skipped}
    return VectorEvaluation("clustering", "", "", {"v_measure": v_measure(labels, numbers.tolist())}, counts)


def evaluate_retrieval(encode: Encoding, files: Files, split: str) -> VectorEvaluation:
    """Rank the documents of a BEIR folder for each query by the cosine of their vectors, and by BM25.

    The folder contains corpus.jsonl (_id, title, text), queries.jsonl (_id, text), and qrels/SPLIT.tsv (query-id,
    corpus-id, score).
    """
    folder = Path(files.dev)
    documents, skipped = _read_texts(folder / "corpus.jsonl", files.bad_rows)
    all_queries, more = _read_texts(folder / "queries.jsonl", files.bad_rows)
    relevant, others = _read_judgements(_judgement_file(folder, split), all_queries, documents, files.bad_rows)
    queries, ids = {key: all_queries[key] for key in relevant}, list(documents)
    ranked = nearest(encode(queries.values(), QUERIES), encode(documents.values(), DOCUMENTS), CUTOFF)
    found = ranking_metrics(relevant, [[ids[place] for place in places.tolist()] for places, _ in ranked])
    baselines, note = {}, ""
    try:
        baselines["BM25"] = ranking_metrics(relevant, rank_by_words(list(queries.values()), documents))
    except InputError as error:
        note = str(error)
    counts = {"queries": len(queries), "documents": len(documents), "skipped": skipped + more + others}
    return VectorEvaluation("retrieval", "", "", found, counts, baselines=baselines, note=note)


TASKS: Mapping[str, Callable[[Encoding, Files, str], VectorEvaluation]] = {
    "sts": evaluate_sts,
    "pairs": evaluate_pairs,
    "clustering": evaluate_clustering,
    "retrieval": evaluate_retrieval,
}
# The columns of the tasks whose data is a table.
_TABLES = {"sts": ("text", "text_b", "label"), "pairs": ("text", "text_b"), "clustering": ("text", "label")}


def _read_texts(path: Path, bad_rows: BadRows) -> tuple[dict[str, str], int]:
    texts: dict[str, str] = {}
    if not path.is_file():
        raise InputError(f"'{path}' not found; give a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv")
    with Table(path, {"_id": "_id", "text": "text"}, TableOptions(bad_rows=bad_rows), optional=["title"]) as table:
        for number, row in table:
            key, title, text = str(row["_id"]), row.get("title") or "", row["text"]
            if not isinstance(text, str) or not isinstance(title, str):
                table.reject(number, f"must have a text in 'text', got {text!r}")
            elif key in texts:
                table.reject(number, f"has the id {key!r} of an earlier line")
            else:
                texts[key] = f"{title} {text}".strip()
        table.require_some(len(texts))
    return texts, table.skipped


def _judgement_file(folder: Path, split: str) -> Path:
    files = sorted(path for path in (folder / "qrels").glob("*") if table_format(path) == ".tsv")
    if not files:
        raise InputError(f"'{folder / 'qrels'}' must have a file such as {split}.tsv, got none; check --data")
    chosen = [path for path in files if path.name.partition(".")[0] == split]
    if not chosen and len(files) > 1:
        raise unknown("split", split, [path.name.partition(".")[0] for path in files])
    # A single file needs no --split.
    return (chosen or files)[0]


def _read_judgements(
    path: Path, queries: Mapping[str, str], documents: Mapping[str, str], bad_rows: BadRows
) -> tuple[Relevant, int]:
    relevant: Relevant = {}
    names = {name: name for name in ("query-id", "corpus-id", "score")}
    with Table(path, names, TableOptions(bad_rows=bad_rows)) as table:
        for number, row in table:
            query, document, gain = row["query-id"], row["corpus-id"], parse_number(row["score"])
            if gain is None:
                table.reject(number, f"has the score {row['score']!r}, which must be a number")
            elif query not in queries:
                table.reject(number, f"has the query {query!r}, which is not in queries.jsonl")
            elif document not in documents:
                table.reject(number, f"has the document {document!r}, which is not in corpus.jsonl")
            elif gain > 0:
                relevant.setdefault(query, {})[document] = gain
        table.require_some(len(relevant))
    return relevant, table.skipped


def rank_by_words(queries: Sequence[str], documents: Mapping[str, str], cutoff: int = CUTOFF) -> Ranking:
    """Rank documents by BM25 (Lucene's, without stemming)."""
    with required("comparing with BM25 requires bm25s", "lightbert[retrieval]"):
        import bm25s
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents.values()), show_progress=False), show_progress=False)
    words = bm25s.tokenize(list(queries), return_ids=False, show_progress=False)
    ids, kept = list(documents), min(cutoff, len(documents))
    places, _ = index.retrieve(words, k=kept, show_progress=False)
    return [[ids[place] for place in row] for row in places.tolist()]


def ranking_metrics(relevant: Relevant, ranking: Ranking) -> dict[str, float]:
    """nDCG@10, recall@100 and MRR@10 of the rankings of the queries, in their order; the means over the queries."""
    measures: dict[str, Callable[[Mapping[str, float], list[str]], float]] = {
        "ndcg@10": lambda gains, ids: _ndcg(gains, ids[:10]),
        "recall@100": lambda gains, ids: sum(key in gains for key in ids[:100]) / len(gains),
        "mrr@10": lambda gains, ids: next((1 / rank for rank, key in enumerate(ids[:10], 1) if key in gains), 0.0),
    }
    rows = list(zip(relevant.values(), ranking, strict=True))
    return {name: float(np.mean([measure(*row) for row in rows])) for name, measure in measures.items()}


def _ndcg(gains: Mapping[str, float], ids: list[str]) -> float:
    order, best = [gains.get(key, 0.0) for key in ids], sorted(gains.values(), reverse=True)[:10]
    found, ideal = (sum(gain / math.log2(rank + 1) for rank, gain in enumerate(row, 1)) for row in (order, best))
    return found / ideal
