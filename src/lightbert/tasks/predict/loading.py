"""Models that can predict: what `lightbert.load` gives."""

from pathlib import Path

from lightbert.interop.load import load as read
from lightbert.nn.encoder import Encoder
from lightbert.tasks.predict.predictor import Predictor


def load(path: str | Path) -> Encoder:
    """Read a model, ready to use: a folder of ours or of Hugging Face's, or the prefix of a TensorFlow 1 checkpoint.

    If it was fine-tuned, its `predict` says what it makes of texts.
    """
    model = read(path)
    model.predictor = Predictor(model, device=None)
    return model
