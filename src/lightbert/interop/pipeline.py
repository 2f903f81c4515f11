"""transformers' text classification pipeline with the answers of `lightbert predict`, as the baseline of benchmarks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lightbert.errors import required


def text_classifier(folder: Path, *, batch: int = 1) -> Callable[[Sequence[str]], list[dict[str, Any]]]:
    """Load a folder in the Hugging Face layout as a function from texts to predictions, on the CPU.

    batch: the number of texts per batch of the pipeline; 1 is its default.
    """
    with required("the comparison requires transformers", "lightbert[hf]"):
        import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pipeline: Any = transformers.pipeline("text-classification", model=str(folder), device="cpu", top_k=None)

    def classify(texts: Sequence[str]) -> list[dict[str, Any]]:
        found = pipeline(list(texts), batch_size=batch, truncation=True)
        return [_prediction(text, scores) for text, scores in zip(texts, found, strict=True)]

    return classify


def _prediction(text: str, scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    probabilities = {each["label"]: each["score"] for each in scores}
    label = max(probabilities, key=lambda each: float(probabilities[each]))
    return {"text": text, "label": label, "probability": probabilities[label], "probabilities": probabilities}
