"""Questions whose answer is a stretch of a context, or that have none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from lightbert.data.examples.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import Kind, Outputs, Prediction
from lightbert.tasks.kinds.spans import decoding
from lightbert.tasks.kinds.spans.findings import find_in_answers
from lightbert.tasks.kinds.spans.scores import score_1_1, score_2_0
from lightbert.tasks.kinds.spans.threshold import best_threshold
from lightbert.tasks.kinds.spans.windows import SpanFeatures, encode
from lightbert.tasks.texts import TextEncoder

RELEASED_THRESHOLDS = {"span": 0.0, "beam": -2.75}
"""Head -> the null threshold of its release: MobileBERT's and ELECTRA's."""

# Where no stretch can be chosen at all; finite, because JSON has no infinity.
_NOTHING_TO_CHOOSE = 1e9


@dataclass(frozen=True)
class Spans(Kind[Question]):
    """BERT's two logits per token (head "span"), or ELECTRA's joint prediction with answerability (head "beam").

    The null score, high where there is no answer, is the lowest of the windows': with "span" the logits of [CLS] less
    those of the best stretch, with "beam" the answerability logit. An answer is given unless it is above
    `null_threshold`; None means always (SQuAD 1.1). `settled` chooses one by F1.
    """

    name: ClassVar[str] = "spans"

    head: str = "span"
    stride: int = 128
    max_query: int = 64
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.head not in ("span", "beam"):
            raise unknown("head for questions", self.head, ("span", "beam"))
        for field in ("stride", "max_query", "max_answer", "n_best"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be >= 1, got {getattr(self, field)}")

    def with_settings(self, **settings: Any) -> "Spans":
        """Change settings; unless an answer is always given, the null threshold becomes that of the head's release."""
        changed = replace(self, **settings)
        always = self.null_threshold is None
        return changed if always else replace(changed, null_threshold=RELEASED_THRESHOLDS[changed.head])

    def features(self, examples: Sequence[Question], encoder: TextEncoder) -> SpanFeatures:
        """One row for each window; targets are start, end and impossible."""
        return encode(examples, encoder, stride=self.stride, max_query=self.max_query)

    def predictions(self, examples: Sequence[Question], features: Features, outputs: Outputs) -> list[Prediction]:
        """The answer in the context's own characters, how sure it is, and what else was considered."""
        if not isinstance(features, SpanFeatures):
            raise TypeError("these features were not made by Spans.features")
        return [self._prediction(each, number, features, outputs) for number, each in enumerate(examples)]

    def metrics(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        """F1 and exact match as SQuAD counts them, by the rules of 2.0 where an answer may be missing."""
        # Numbers instead of ids: those may be absent or not unique.
        truths = [(str(number), [answer.text for answer in each.answers or ()]) for number, each in enumerate(examples)]
        answers = {str(number): each["answer"] for number, each in enumerate(predictions)}
        second = self.null_threshold is not None or any(not texts for _, texts in truths)
        found = score_2_0(truths, answers) if second else score_1_1(truths, answers)
        shares = {name: value / 100 for name, value in found.items() if not name.endswith("total")}
        return {"f1": shares.pop("f1"), **shares}

    def findings(self, examples: Sequence[Question], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Answers by whether there is one and by question word, calibration, and the worst answers."""
        return find_in_answers(examples, predictions, worst)

    def with_best_threshold(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> "Spans":
        """The same kind, with the threshold that gives these predictions the highest F1."""
        return replace(self, null_threshold=best_threshold(examples, predictions))

    def settled(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> "Spans":
        """Choose the threshold, where there are questions without an answer."""
        unanswerable = any(not each.answers for each in examples)
        return self.with_best_threshold(examples, predictions) if unanswerable else self

    def _prediction(self, question: Question, number: int, features: SpanFeatures, outputs: Outputs) -> Prediction:
        rows = features.windows(number)
        firsts, sizes = features.firsts[rows.start : rows.stop], features.sizes(rows)
        owner = decoding.owners(firsts, sizes)
        found, nulls = [], []
        for window, row in enumerate(rows):
            first, size, second = int(firsts[window]), int(sizes[window]), int(features.seconds[row])
            own = owner[first : first + size] == window
            if self.head == "span":
                start, end = outputs[row]
                part = slice(second, second + size)
                spans = decoding.searched(start[part], end[part], own, self.max_answer, self._considered)
                nulls.append(float(start[0]) + float(end[0]))
            else:
                start, end, score, impossible = outputs[row]
                spans = decoding.kept(start - second, end - second, score, own, self.max_answer)
                nulls.append(float(impossible))
            found.append((spans[0] + first, spans[1] + first, spans[2]))
        starts, ends, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        offsets = features.pieces[features.contexts[number]][1]
        best = decoding.stretches((starts, ends, scores), question.context, offsets, self.n_best)
        return self._told(question, best, min(nulls))

    @property
    def _considered(self) -> int:
        """Candidates to keep of each window: more than n_best, because the same words may stand in several places."""
        return 5 * self.n_best

    def _told(self, question: Question, best: list[decoding.Stretch], null: float) -> Prediction:
        if not best:
            null_score = _NOTHING_TO_CHOOSE
        elif self.head == "span":
            null_score = null - best[0].score
        else:
            null_score = null
        weights = [math.exp(each.score - best[0].score) for each in best]
        nothing = self._null_probability(null_score, sum(weights))
        n_best = [
            {
                "answer": question.context[each.start : each.end],
                "start": each.start,
                "end": each.end,
                "score": each.score,
                "probability": (1 - nothing) * weight / sum(weights),
            }
            for each, weight in zip(best, weights, strict=True)
        ]
        empty: Prediction = {"answer": "", "start": None, "end": None, "probability": nothing}
        refused = self.null_threshold is not None and null_score > self.null_threshold
        chosen = empty if refused or not n_best else {name: n_best[0][name] for name in empty}
        return {**chosen, "null_score": null_score, "n_best": n_best}

    def _null_probability(self, null_score: float, weights: float) -> float:
        """With "span" the null answer is one more candidate, with "beam" its logit stands by itself."""
        if not weights:
            return 1.0
        if self.null_threshold is None:
            return 0.0
        odds = null_score - (math.log(weights) if self.head == "span" else 0.0)
        return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0
