"""The generator of a pre-trained model, which proposes words for [MASK]."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightbert.tasks.predict.exported import ExportedModel
    from lightbert.tasks.predict.text_model import TextModel


def generator_of(name: str, model: "TextModel | ExportedModel") -> "TextModel | None":
    """Load the generator that replaced-token detection saved next to a model; None if there is none.

    name: the name that the model was loaded by.
    """
    beside = Path(name).resolve().parent / "generator"
    if "rtd" not in model.heads or "mlm" in model.heads or not (beside / "config.json").is_file():
        return None
    # Imported here because an exported model is served without torch.
    from lightbert.tasks.predict.text_model import TextModel, load

    if not isinstance(model, TextModel):
        return None
    generator = load(beside)
    return generator if "mlm" in generator.heads and generator.tokenizer is not None else None
