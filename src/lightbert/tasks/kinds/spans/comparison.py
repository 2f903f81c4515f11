"""SQuAD's answer comparison: lower case, without punctuation, articles and extra white space."""

import re
import string
from collections import Counter

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Normalize an answer for comparison."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_DELETE_PUNCTUATION)).split())


def exact(prediction: str, truth: str) -> int:
    """1 if the normalized answers are equal, else 0."""
    return int(normalize_answer(prediction) == normalize_answer(truth))


def f1(prediction: str, truth: str, *, both_empty: int) -> float:
    """Word-level F1 of two normalized answers.

    It is 0 if they have no word in common; two empty answers give `both_empty`: 0 in SQuAD 1.1, 1 in 2.0.
    """
    predicted, true = normalize_answer(prediction).split(), normalize_answer(truth).split()
    if not predicted and not true:
        return both_empty
    common = (Counter(predicted) & Counter(true)).total()
    if not common:
        return 0
    precision, recall = common / len(predicted), common / len(true)
    return 2 * precision * recall / (precision + recall)
