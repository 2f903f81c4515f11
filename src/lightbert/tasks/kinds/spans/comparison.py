"""How SQuAD compares an answer with the truth: in small letters, without punctuation, articles and extra spaces."""

import re
import string
from collections import Counter

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalized(text: str) -> str:
    """What is left of an answer for comparison."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact(prediction: str, truth: str) -> int:
    """1 when nothing that matters differs."""
    return int(normalized(prediction) == normalized(truth))


def f1(prediction: str, truth: str, *, both_empty: int) -> float:
    """The harmonic mean of the shares of words that the two have in common.

    Without a word on either side it is 0, except that two empty ones give `both_empty`: 0 in 1.1, 1 in 2.0.
    """
    ours, theirs = normalized(prediction).split(), normalized(truth).split()
    if not ours and not theirs:
        return both_empty
    common = (Counter(ours) & Counter(theirs)).total()
    if not common:
        return 0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)
