"""`lightbert evaluate` with the tasks for vectors: sts, pairs, clustering and retrieval."""

import json

import numpy as np
import pytest
from tiny_classifiers import write_vector_model

import lightbert
from extras import needs_bm25
from lightbert import cli
from lightbert.tasks import metrics
from lightbert.tasks.predict.vector_evaluation import rank_by_words, ranking_metrics

PAIRS = [("good film", "a good film", 4.5), ("bad film", "the film was good", 1.0), ("the", "bad film", 0.25)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_vector_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def evaluate(capsys, model):
    """Run the command with --json; return the exit code, the report and stderr."""

    def run(*arguments):
        code = cli.main(["evaluate", str(model), *map(str, arguments), "--json"])
        output = capsys.readouterr()
        return code, json.loads(output.out or "{}"), output.err

    return run


def write_beir(folder):
    lines = {
        "corpus.jsonl": [
            {"_id": "d1", "title": "film", "text": "good film"},
            {"_id": "d2", "title": "", "text": "a bad film"},
            {"_id": "d3", "text": "the"},
        ],
        "queries.jsonl": [{"_id": "q1", "text": "good"}, {"_id": "q2", "text": "bad"}, {"_id": "q3", "text": "a"}],
    }
    (folder / "qrels").mkdir(parents=True)
    for name, rows in lines.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    qrels = ["query-id\tcorpus-id\tscore", "q1\td1\t2", "q1\td3\t1", "q2\td2\t1", "q3\td2\t0"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")
    return folder


def cosines(model, pairs):
    loaded = lightbert.load(model)
    first, second = (loaded.encode([pair[side] for pair in pairs], normalize=True) for side in (0, 1))
    return (first * second).sum(1)


def test_sts_correlates_cosines_with_the_scores_of_a_table(evaluate, model, tmp_path):
    own = ["one,two,value", *(f"{a},{b},{score}" for a, b, score in PAIRS)]
    (tmp_path / "own.csv").write_text("\n".join(own) + "\n")
    stsb = ["index\tsource1\tsentence1\tsentence2\tscore", *(f"0\tnone\t{a}\t{b}\t{s}" for a, b, s in PAIRS)]
    (tmp_path / "dev.tsv").write_text("\n".join(stsb) + "\n")
    scores, expected = [score for _, _, score in PAIRS], cosines(model, PAIRS)
    for name, options in (("own.csv", ("--text", "one", "--text-b", "two", "--label", "value")), ("dev.tsv", ())):
        code, report, _ = evaluate("--task", "sts", "--data", tmp_path / name, *options)
        assert code == 0
        assert report["metrics"]["pearson"] == pytest.approx(metrics.pearson(scores, expected), abs=1e-5)
        assert report["metrics"]["spearman"] == pytest.approx(metrics.spearman(scores, expected))
        assert (report["pairs"], report["skipped"]) == (3, 0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("text,other\na,b\n", "must have a column for --text-b, got the columns text, other; add --text-b COLUMN"),
        ("text,text_b,score\na,b,much\n", "has 'much' in column 'score', which must be a number"),
        ("text,text_b,score\na, ,1\n", "must have a text in column 'text_b', got ' '"),
    ],
)
def test_a_bad_table_of_pairs_is_one_sentence(evaluate, tmp_path, content, sentence):
    (tmp_path / "my.csv").write_text(content)
    code, _, error = evaluate("--task", "sts", "--data", tmp_path / "my.csv")
    assert (code != 0, error.count("\n")) == (True, 1)
    assert sentence in error


def test_retrieval_ranks_the_documents_for_each_query_with_its_prompts(evaluate, model, tmp_path):
    code, report, _ = evaluate("--task", "retrieval", "--data", write_beir(tmp_path / "beir"))
    assert code == 0
    loaded = lightbert.load(model)
    queries = loaded.encode(["good", "bad"], prompt="bad ", normalize=True)
    documents = loaded.encode(["film good film", "a bad film", "the"], prompt="good ", normalize=True)
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")
    ranking = [[f"d{place + 1}" for place in row] for row in order]
    expected = ranking_metrics({"q1": {"d1": 2.0, "d3": 1.0}, "q2": {"d2": 1.0}}, ranking)
    assert report["metrics"] == pytest.approx(expected)
    assert (report["queries"], report["documents"]) == (2, 3)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("corpus.jsonl", None, "corpus.jsonl' not found; give a folder with corpus.jsonl, queries.jsonl and qrels/"),
        ("queries.jsonl", '{"_id": "q9", "text": "x"}\n', "has the query 'q1', which is not in queries.jsonl"),
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}\n', "has the document 'd3', which is not in corpus.jsonl"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tgood\n", "has the score 'good', which must be"),
        ("qrels/train.tsv", "", "unknown split 'dev'; choose from test, train"),
    ],
)
def test_a_bad_folder_is_one_sentence(evaluate, tmp_path, name, content, sentence):
    path = write_beir(tmp_path / "beir") / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    code, _, error = evaluate("--task", "retrieval", "--data", tmp_path / "beir")
    assert (code != 0, error.count("\n")) == (True, 1)
    assert sentence in error


def test_the_metrics_of_rankings_are_those_of_their_definitions():
    relevant = {"a": {"x": 3.0, "y": 1.0}, "b": {"z": 1.0}}
    found = ranking_metrics(relevant, [["n", "y", "x"], [f"n{number}" for number in range(10)] + ["z"]])
    ndcg = (1 / np.log2(3) + 3 / np.log2(4)) / (3 + 1 / np.log2(3))
    assert found == pytest.approx({"ndcg@10": ndcg / 2, "recall@100": 1.0, "mrr@10": 0.25})


def test_pairs_are_ranked_with_the_prompts_of_queries_and_documents(evaluate, model, tmp_path):
    (tmp_path / "my.csv").write_text("q,d\n" + "".join(f"{a},{b}\n" for a, b, _ in PAIRS))
    code, report, _ = evaluate("--task", "pairs", "--data", tmp_path / "my.csv", "--text", "q", "--text-b", "d")
    loaded = lightbert.load(model)
    first = loaded.encode([pair[0] for pair in PAIRS], prompt="bad ", normalize=True)
    second = loaded.encode([pair[1] for pair in PAIRS], prompt="good ", normalize=True)
    cosines = first @ second.T
    ranks = [1 + int((row > row[place]).sum()) for place, row in enumerate(cosines)]
    assert (code, report["pairs"]) == (0, 3)
    assert report["metrics"]["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))


def test_clusters_are_compared_with_labels(evaluate, tmp_path):
    rows = [f"{text},{label}" for text, label in (("good", "a"), ("bad bad bad .", "b")) for _ in range(4)]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    code, report, _ = evaluate("--task", "clustering", "--data", tmp_path / "my.csv")
    assert (code, report["texts"], report["labels"]) == (0, 8, 2)
    assert report["metrics"]["v_measure"] == pytest.approx(1.0)


@needs_bm25
def test_bm25_stands_beside_the_model(evaluate, tmp_path):
    documents = {"a": "boats sank near the coast", "b": "a film about boats", "c": "two dogs"}
    first, second = rank_by_words(["dogs", "sank boats"], documents, 2)
    assert (first[0], second) == ("c", ["a", "b"])
    _, report, _ = evaluate("--task", "retrieval", "--data", write_beir(tmp_path / "beir"))
    assert report["baselines"]["BM25"].keys() == report["metrics"].keys()
    assert report["baselines"]["BM25"]["mrr@10"] == 1.0
