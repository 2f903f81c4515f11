"""The generator of a pre-trained model, which proposes words for [MASK]."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightbert.tasks.predict.exported import ExportedModel
    from lightbert.tasks.predict.text_model import TextModel


def load_generator(name: str, model: "TextModel | ExportedModel") -> "TextModel | None":
    """Load the generator that replaced-token detection saved with a model; None if there is none.

    name: the name that the model was loaded by.
    """
    if "rtd" not in model.heads or "mlm" in model.heads:
        return None
    # Imported here because an exported model is served without torch.
    from lightbert.interop.names import find, generator_of
    from lightbert.tasks.predict.text_model import TextModel, load

    found = generator_of(find(name)) if isinstance(model, TextModel) else None
    if found is None:
        return None
    generator = load(found.path)
    return generator if "mlm" in generator.heads and generator.tokenizer is not None else None
