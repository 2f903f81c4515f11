"""Questions, SQuAD files, and perfect model outputs for tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightbert.data.tokenizer import train
from lightbert.tasks.example import TextEncoder
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.kinds.spans import SpanFeatures

CORPUS = ["The cat sat on the mat, and the dog didn't see it. Who was 12 or 3 in the cafe?"] * 3
TOKENIZERS = {
    "wordpiece": train(CORPUS, "wordpiece", 120),
    "cased": train(CORPUS, "wordpiece", 120, lowercase=False),
    "unigram": train(CORPUS, "unigram", 100),
}


def encoder(length: int = 48, name: str = "wordpiece") -> TextEncoder:
    return TextEncoder(TOKENIZERS[name], length)


def question_entry(id: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:  # noqa: A002
    """An entry of a data file."""
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": f"Who is {id}?", "answers": listed, **more}


def document(context: str, *entries: dict[str, Any], version: str = "1.1") -> dict[str, Any]:
    return {"version": version, "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def perfect_outputs(features: SpanFeatures, head: str, sure: float = 20.0) -> Outputs:
    """Outputs that point at the targets, or at [CLS] if the answer isn't in the window."""
    assert features.targets is not None
    outputs = []
    for length, (start, end, impossible) in zip(features.lengths, features.targets.tolist(), strict=True):
        if head == "span":
            logits = np.zeros((2, length), dtype=np.float32)
            logits[0, start] = logits[1, end] = sure
            outputs.append((logits[0], logits[1]))
        else:
            error_message = np.float32(sure if impossible else -sure)
            outputs.append((np.array([start]), np.array([end]), np.array([0.0], dtype=np.float32), error_message))
    return outputs


def answers(predictions: Sequence[dict[str, Any]]) -> list[str]:
    return [prediction["answer"] for prediction in predictions]
