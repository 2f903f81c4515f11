"""Few labels: methods of `finetune classify` next to scikit-learn, by test score over several draws of labelled texts.

    python -m benchmarks.labels FOLDER [sizes=8x,64,300,1000] [splits=3] [sets=trec,mr] [model=NAME] [test_rows=1000]

FOLDER has NAME-train*.csv and NAME-test.csv with the columns text and label. For each draw of a number of rows from the
training file, or of 8 rows per label with 8x, the linear methods are trained, and what cross-validation chooses is
"auto". The peers are TF-IDF of words (1 to 2) and characters (2 to 5) with logistic regression or a linear support
vector machine. Fine-tuning isn't part of it: it takes minutes.
"""

import csv
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pages import run_main
from lightbert.config import assignments, from_mapping, merge
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.finetune.comparison import Comparison
from lightbert.tasks.finetune.dataset import load_data
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.starting_model import starting_model

Rows = list[tuple[str, str]]
Key = tuple[str, str, str]
"""A set, a number of labels, and a method."""


def main() -> None:
    """Print a line per set and number of labels, then the table in Markdown."""
    words = sys.argv[1:]
    if not words:
        raise InputError("the folder of the sets is required: python -m benchmarks.labels FOLDER")
    folder, options = Path(words[0]), dict(word.split("=", 1) for word in words[1:])
    sizes = options.get("sizes", "64,300,1000").split(",")
    names = sorted(path.name.removesuffix("-test.csv") for path in folder.glob("*-test.csv"))
    names = options["sets"].split(",") if "sets" in options else names
    scores: dict[Key, list[float]] = defaultdict(list)
    for name in names:
        train = read_rows(max(folder.glob(f"{name}-train*.csv"), key=lambda path: path.stat().st_size))
        test = read_rows(folder / f"{name}-test.csv")[: int(options.get("test_rows", "1000"))]
        for size in sizes:
            for seed in range(int(options.get("splits", "3"))):
                rows = draw(train, size, seed)
                for method, score in measure(rows, test, options.get("model", "convbert-small-en")):
                    scores[name, size, method].append(100 * score)
            line = (f"{key[2]} {fmean(scores[key]):.1f}" for key in scores if key[:2] == (name, size))
            print(f"{name} {size}: {', '.join(line)}", flush=True)
    print("\n".join(table(scores)))


def read_rows(path: Path) -> Rows:
    """The texts and labels of a file."""
    with path.open(newline="", encoding="utf-8") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file) if row["text"].strip()]


def draw(train: Rows, size: str, seed: int) -> Rows:
    """Draw rows: a number of them, or with an x after it, as many of each label."""
    rows = [train[row] for row in np.random.default_rng(seed).permutation(len(train))]
    if not size.endswith("x"):
        return rows[: int(size)]
    by_label = defaultdict(list)
    for row in rows:
        by_label[row[1]].append(row)
    return [row for several in by_label.values() for row in several[: int(size[:-1])]]


def measure(rows: Rows, test: Rows, model: str) -> Iterator[tuple[str, float]]:
    """The accuracy of each method on the test rows, and the seconds of all of ours."""
    truth = np.array([label for _, label in test])
    for name, predicted in peers(rows, [text for text, _ in test]):
        yield name, float((predicted == truth).mean())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        keys = assignments([f"model={model}", f"data.train={path}", "data.kind=classify", "out=unused"])
        recipe = from_mapping(FinetuneRecipe, merge(read("classify"), keys))
        start = time.perf_counter()
        base = starting_model(recipe)
        data = load_data(recipe, base.require_tokenizer(), positions=base.positions, verbose=False)
        comparison = Comparison(recipe, base, data, predict=lambda data, model: [], verbose=False)
        seconds = time.perf_counter() - start
        for name, method in comparison.methods.items():
            trained = comparison.describe(method.train(recipe.seed))
            answers = trained_model(trained).predict([text for text, _ in test])
            score = float(np.mean([answer["label"] == label for answer, label in zip(answers, truth, strict=True)]))
            yield name, score
            if name == comparison.method.name:
                yield "auto", score
        yield "seconds", seconds / 100


def trained_model(model: Any) -> Any:
    """The model with methods for texts."""
    from lightbert.tasks.predict.text_model import TextModel

    return TextModel(model, model.metadata)


def peers(rows: Rows, texts: list[str]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The predictions of scikit-learn's linear models of TF-IDF features."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_union
    from sklearn.svm import LinearSVC

    union = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
    )
    features, labels = union.fit_transform([text for text, _ in rows]), [label for _, label in rows]
    others = union.transform(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield "TF-IDF + LR", LogisticRegression(C=10, max_iter=300).fit(features, labels).predict(others)
        yield "TF-IDF + SVM", LinearSVC().fit(features, labels).predict(others)


def table(scores: dict[Key, list[float]]) -> Iterator[str]:
    """The mean over the draws ± their standard deviation, and the means over the sets."""
    methods = list(dict.fromkeys(method for _, _, method in scores))
    yield f"| labels | set | {' | '.join(methods)} |"
    yield f"| ---: | --- |{' ---: |' * len(methods)}"
    for size in dict.fromkeys(size for _, size, _ in scores):
        names = list(dict.fromkeys(name for name, count, _ in scores if count == size))
        for name in names:
            cells = (scores[name, size, method] for method in methods)
            yield f"| {size} | {name} | {' | '.join(_cell(values) for values in cells)} |"
        means = (fmean(fmean(scores[name, size, method]) for name in names) for method in methods)
        yield f"| {size} | mean | {' | '.join(f'{mean:.1f}' for mean in means)} |"


def _cell(values: list[float]) -> str:
    return f"{fmean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{fmean(values):.1f}"


if __name__ == "__main__":
    run_main(main)
