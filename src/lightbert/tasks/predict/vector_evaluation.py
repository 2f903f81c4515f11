"""Evaluation of vectors: similarity of pairs of texts (STS), and retrieval of BEIR folders, with BM25 beside it."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.tables import Table, table_format
from lightbert.data.text_files import BadRows
from lightbert.errors import InputError, required, unknown
from lightbert.tasks import metrics
from lightbert.tasks.datasets.glue import open_glue
from lightbert.tasks.kinds.kind import parse_number
from lightbert.tasks.predict.vectors import Floats, normalize_vectors

if TYPE_CHECKING:
    from rich.console import RenderableType

# The names of the columns in the files of STS-B, after those of our own tables.
_COLUMNS = {"text": ("text", "sentence1"), "text_b": ("text_b", "sentence2"), "label": ("label", "score")}
_QUERY_PROMPTS, _DOCUMENT_PROMPTS = ("query",), ("document", "passage", "corpus")
_CUTOFF = 100
"""The number of documents that are ranked for each query."""
_SCORES = 1 << 24
"""The number of similarities that are computed at once."""

Ranking = list[list[str]]
"""For each query the ids of documents, the best one first."""
Relevant = dict[str, dict[str, float]]
"""The id of each query -> the relevant documents, with their gains."""


class Encodes(Protocol):
    """A model that encodes texts as vectors."""

    def encode(self, texts: Any, *, prompt_name: str | None = None, batch: int = 0) -> Floats:
        """Return one vector per text."""

    @property
    def pooling(self) -> Any:
        """How the model computes vectors."""


@dataclass(frozen=True)
class VectorEvaluation:
    """The metrics of a model on a task for vectors."""

    task: str
    model: str
    data: str
    metrics: dict[str, float]
    counts: dict[str, int]
    seconds: float
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
        from rich.table import Table

        table = Table(box=None)
        table.add_column(f"{self.task}, {Path(self.data).name}")
        for title in ("value", *self.baselines):
            table.add_column(title, justify="right")
        for name, value in self.metrics.items():
            table.add_row(name, f"{value:.4f}", *(f"{each[name]:.4f}" for each in self.baselines.values()))
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return Group(table, f"{counts}; encoded in {self.seconds:.1f} s", *([self.note] if self.note else []))


def evaluate_sts(
    model: Encodes,
    data: str,
    *,
    split: str = "dev",
    columns: Mapping[str, str | None] | None = None,
    separator: str = ",",
    bad_rows: BadRows = "error",
    batch: int = 0,
    name: str = "",
) -> VectorEvaluation:
    """Correlate the cosines of pairs of texts with their scores.

    data: a table with two columns of texts and one of numbers, such as a file of STS-B, or the folder of GLUE.
    columns: the names of the columns "text", "text_b" and "label" of a table; those of STS-B are found.
    """
    if Path(data).is_dir():
        examples = open_glue("stsb", data, bad_rows=bad_rows).examples(split)
        pairs = [(each.text, each.text_b or "", each.label) for each in examples]
        skipped = examples.skipped
        if any(label is None for _, _, label in pairs):
            raise InputError(f"the split {split!r} of STS-B in '{data}' has no scores; choose another --split")
    else:
        pairs, skipped = _read_pairs(data, dict(columns or {}), separator, bad_rows)
    texts = list(dict.fromkeys(text for first, second, _ in pairs for text in (first, second)))
    places = {text: place for place, text in enumerate(texts)}
    start = time.perf_counter()
    vectors = normalize_vectors(model.encode(texts, batch=batch))
    seconds = time.perf_counter() - start
    first, second = (vectors[[places[pair[side]] for pair in pairs]] for side in (0, 1))
    cosines = (first * second).sum(1).tolist()
    scores = [float(score) for _, _, score in pairs]
    found = {"spearman": metrics.spearman(scores, cosines), "pearson": metrics.pearson(scores, cosines)}
    return VectorEvaluation("sts", name, data, found, {"pairs": len(pairs), "skipped": skipped}, seconds)


def _read_pairs(
    path: str, columns: dict[str, str | None], separator: str, bad_rows: BadRows
) -> tuple[list[tuple[str, str, Any]], int]:
    known = Table(path, separator=separator).columns()
    names = {}
    for key, defaults in _COLUMNS.items():
        name = columns.get(key) or next((each for each in defaults if each in known), "")
        if name not in known:
            raise InputError(
                f"'{path}' must have a column for data.{key}, got the columns {', '.join(known)}; add data.{key}=COLUMN"
            )
        names[f"data.{key}"] = name
    first, second, label = names.values()
    pairs = []
    with Table(path, names, separator=separator, bad_rows=bad_rows) as table:
        for number, row in table:
            score = parse_number(row[label])
            texts = (row[first], row[second])
            if score is None:
                table.reject(number, f"has {row[label]!r} in column {label!r}, which must be a number")
            elif not all(isinstance(text, str) and text.strip() for text in texts):
                table.reject(number, f"must have texts in the columns {first!r} and {second!r}, got {texts!r}")
            else:
                pairs.append((*texts, score))
        table.require_some(len(pairs))
    return pairs, table.skipped


def evaluate_retrieval(
    model: Encodes, data: str, *, split: str = "dev", bad_rows: BadRows = "error", batch: int = 0, name: str = ""
) -> VectorEvaluation:
    """Rank the documents of a BEIR folder for each query by the cosine of their vectors, and by BM25.

    data: corpus.jsonl (_id, title, text), queries.jsonl (_id, text), qrels/SPLIT.tsv (query-id, corpus-id, score).
    """
    documents, skipped = _read_texts(Path(data, "corpus.jsonl"), bad_rows)
    all_queries, more = _read_texts(Path(data, "queries.jsonl"), bad_rows)
    relevant, others = _read_judgements(_judgement_file(Path(data), split), all_queries, documents, bad_rows)
    queries = {key: all_queries[key] for key in relevant}
    start = time.perf_counter()
    query_vectors, vectors = (
        normalize_vectors(model.encode(list(texts.values()), prompt_name=_prompt(model, names), batch=batch))
        for texts, names in ((queries, _QUERY_PROMPTS), (documents, _DOCUMENT_PROMPTS))
    )
    seconds = time.perf_counter() - start
    ranking = rank_by_vectors(query_vectors, vectors, list(documents))
    baselines, note = {}, ""
    try:
        baselines["BM25"] = ranking_metrics(relevant, rank_by_words(list(queries.values()), documents))
    except InputError as error:
        note = str(error)
    counts = {"queries": len(queries), "documents": len(documents), "skipped": skipped + more + others}
    return VectorEvaluation(
        "retrieval", name, data, ranking_metrics(relevant, ranking), counts, seconds, baselines, note
    )


def _prompt(model: Encodes, names: Sequence[str]) -> str | None:
    """The name of the prompt of the model for queries or documents; None = its default prompt."""
    prompts = model.pooling.prompts if model.pooling else {}
    return next((name for name in names if name in prompts), None)


def _read_texts(path: Path, bad_rows: BadRows) -> tuple[dict[str, str], int]:
    texts: dict[str, str] = {}
    if not path.is_file():
        raise InputError(f"'{path}' not found; give a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv")
    with Table(path, {"_id": "_id", "text": "text"}, optional=["title"], bad_rows=bad_rows) as table:
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
    with Table(path, names, bad_rows=bad_rows) as table:
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


def rank_by_vectors(queries: Floats, documents: Floats, ids: Sequence[str], cutoff: int = _CUTOFF) -> Ranking:
    """Rank documents by dot products, block by block; ties are in the order of the documents."""
    kept, block = min(cutoff, len(ids)), max(1, _SCORES // len(ids))
    ranking: Ranking = []
    for start in range(0, len(queries), block):
        scores = queries[start : start + block] @ documents.T
        for row in scores:
            lowest = np.partition(row, len(row) - kept)[len(row) - kept]
            candidates: NDArray[np.int64] = np.flatnonzero(row >= lowest)
            order = candidates[np.argsort(-row[candidates], kind="stable")][:kept]
            ranking.append([ids[place] for place in order.tolist()])
    return ranking


def rank_by_words(queries: Sequence[str], documents: Mapping[str, str], cutoff: int = _CUTOFF) -> Ranking:
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
    best = sorted(gains.values(), reverse=True)[:10]
    return _discounted(gains.get(key, 0.0) for key in ids) / _discounted(best)


def _discounted(gains: Iterable[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
