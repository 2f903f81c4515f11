"""What a model can do over HTTP, by its heads."""

from typing import TYPE_CHECKING

from lightbert.errors import InputError
from lightbert.serve.endpoints.attention import Attention
from lightbert.serve.endpoints.embed import Embed
from lightbert.serve.endpoints.endpoint import Endpoint
from lightbert.serve.endpoints.fill import Fill
from lightbert.serve.endpoints.predict import Predict
from lightbert.serve.endpoints.suspicion import Suspicion
from lightbert.tasks.predict.exported import STATES, ExportedModel
from lightbert.tasks.predict.forward import Runtime
from lightbert.tasks.predict.model_kind import encoder_of, kind_of_model
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.texts import TextEncoder

if TYPE_CHECKING:
    from lightbert.tasks.predict.text_model import TextModel

PURPOSES = {
    "predict": "predictions of a fine-tuned model, as of `lightbert predict`",
    "embed": "one vector per text, as of `lightbert embed`",
    "fill": "candidates for each [MASK] of a text",
    "suspicion": "the probability of each word that it was replaced",
    "attention": "the attention maps and dynamic kernels of a layer",
}
"""Every endpoint, with its purpose."""

_TASK_HEADS = ("classify", "regress", "tokens", "beam", "span")


def endpoints_of(
    model: "TextModel | ExportedModel",
    *,
    generator: "TextModel | None" = None,
    device: str = "auto",
    length: int = 0,
) -> dict[str, Endpoint]:
    """The endpoints of a model by name; a pre-trained model without a task has no "predict".

    generator: fills in [MASK] for a model without an MLM head, such as the generator of replaced-token detection.
    """
    found: list[Endpoint] = []
    encoder = encoder_of(model, length)
    if any(head in model.heads for head in _TASK_HEADS):
        runtime = _runtime(model, kind_of_model(model).head, device)
        found.append(Predict(Predictor(model, length=length, runtime=runtime), runtime))
    if "rtd" in model.heads:
        found.append(Suspicion(encoder, _runtime(model, "rtd", device)))
    if "mlm" in model.heads:
        found.append(Fill(encoder, _runtime(model, "mlm", device)))
    elif generator is not None:
        found.append(Fill(encoder_of(generator, length), _runtime(generator, "mlm", device)))
    if embed := _embed(model, device, length):
        found.append(embed)
    if not found:
        raise InputError(
            f"the heads of the model must include one of {', '.join((*_TASK_HEADS, 'rtd', 'mlm'))}, got "
            f"{', '.join(model.heads)}; export the model with another --head"
        )
    if not isinstance(model, ExportedModel):
        found.append(_attention(model, encoder, device))
    return {each.name: each for each in found}


def why_missing(name: str) -> str:
    """The reason why a model has no such endpoint, as the beginning of a sentence."""
    if name == "attention":
        return "an exported model records no attention maps; serve the folder that it was exported from"
    return f"the model has no head for /v1/{name} ({PURPOSES[name]})"


def _attention(model: "TextModel", encoder: TextEncoder, device: str) -> Endpoint:
    from lightbert.nn.inference import LayerMaps
    from lightbert.tasks.predict.torch_runtime import TorchRuntime
    from lightbert.train.distributed import resolve_device

    placed = model.to(resolve_device(device))
    return Attention(encoder, [TorchRuntime(LayerMaps(placed, layer + 1)) for layer in range(len(model.blocks))])


def _embed(model: "TextModel | ExportedModel", device: str, length: int) -> Endpoint | None:
    if isinstance(model, ExportedModel):
        return Embed(model.embedder(length=length)) if model.head == STATES else None
    # Imported here because an exported model is served without torch.
    from lightbert.tasks.predict.torch_runtime import embedder_of
    from lightbert.train.distributed import resolve_device

    return Embed(embedder_of(model.to(resolve_device(device)), length=length))


def _runtime(model: "TextModel | ExportedModel", head: str, device: str) -> Runtime:
    if isinstance(model, ExportedModel):
        return model.runtime
    from lightbert.nn.inference import Inference
    from lightbert.tasks.predict.torch_runtime import TorchRuntime
    from lightbert.train.distributed import resolve_device

    return TorchRuntime(Inference(model.to(resolve_device(device)), head))
