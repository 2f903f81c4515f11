"""The model behind a server: its endpoints by its heads, its generator, and what it computes with."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from lightbert.errors import InputError
from lightbert.nn.pooling_settings import PROJECTION
from lightbert.serve.endpoints import Attention, Embed, Endpoint, Fill, Predict, Suspicion
from lightbert.tasks.example import TextEncoder
from lightbert.tasks.kinds import task_heads
from lightbert.tasks.predict.exported import STATES, ExportedModel
from lightbert.tasks.predict.predictor import Predictor, encoder_of, kind_of_model, runtime_of
from lightbert.tasks.predict.runtime import Runtime
from lightbert.tasks.predict.vectors import embedder_of

if TYPE_CHECKING:
    from lightbert.tasks.predict.text_model import TextModel


M = TypeVar("M", bound="TextModel | ExportedModel")


def with_threads(model: M, threads: int) -> M:
    """The model with this number of threads; 0 = chosen by its runtime. Torch has one number for the whole process."""
    if threads == 0:
        return model
    if isinstance(model, ExportedModel):
        return replace(model, threads=threads)
    import torch

    torch.set_num_threads(threads)
    return model


# The operators of several batches; one shape of a batch needs about ten.
_CAPACITY = "64"
# oneDNN reads both names.
_NAMES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")


def limit_operator_cache() -> None:
    """Let oneDNN keep few operators, unless the environment sets their number or torch is already imported.

    oneDNN creates an operator for each shape and keeps 1,024 of them. The batches of a server have ever new shapes, so
    that its memory would grow for many minutes; they take as long with few operators.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _NAMES):
        os.environ[_NAMES[0]] = _CAPACITY


def load_generator(name: str, model: "TextModel | ExportedModel") -> "TextModel | None":
    """Load the generator that replaced-token detection saved with a model; None if there is none.

    name: the name that the model was loaded by.
    """
    if "rtd" not in model.heads or "mlm" in model.heads:
        return None
    # Imported here because an exported model is served without torch.
    from lightbert.interop.load import find, generator_of
    from lightbert.tasks.predict.text_model import TextModel, load_text_model

    location = generator_of(find(name)) if isinstance(model, TextModel) else None
    if location is None:
        return None
    generator = load_text_model(location.path)
    return generator if "mlm" in generator.heads and generator.tokenizer is not None else None


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
    endpoints: list[Endpoint] = []
    encoder = encoder_of(model, length)
    if any(head in model.heads for head in task_heads()):
        runtime = runtime_of(model, kind_of_model(model).head, device)
        endpoints.append(Predict(Predictor(model, length=length, runtime=runtime), runtime))
    if "rtd" in model.heads:
        endpoints.append(Suspicion(encoder, runtime_of(model, "rtd", device)))
    if "mlm" in model.heads:
        endpoints.append(Fill(encoder, runtime_of(model, "mlm", device)))
    elif generator is not None:
        endpoints.append(Fill(encoder_of(generator, length), runtime_of(generator, "mlm", device)))
    if not isinstance(model, ExportedModel) or model.head in (STATES, PROJECTION):
        pool = model.pooling.pool if model.pooling else "mean"
        endpoints.append(Embed(embedder_of(model, length=length, device=device), _states_runtime(model, device), pool))
    if not endpoints:
        raise InputError(
            f"the heads of the model must include one of {', '.join((*task_heads(), 'rtd', 'mlm'))}, got "
            f"{', '.join(model.heads)}; export the model with another --head"
        )
    if not isinstance(model, ExportedModel):
        endpoints.append(_attention(model, encoder, device))
    return {endpoint.name: endpoint for endpoint in endpoints}


def _attention(model: "TextModel", encoder: TextEncoder, device: str) -> Endpoint:
    from lightbert.nn.inference import LayerMaps
    from lightbert.tasks.predict.torch_runtime import TorchRuntime, place

    placed = place(model, device)
    return Attention(encoder, [TorchRuntime(LayerMaps(placed, layer + 1)) for layer in range(len(model.blocks))])


def _states_runtime(model: "TextModel | ExportedModel", device: str) -> Runtime | None:
    """What computes one vector per token."""
    if isinstance(model, ExportedModel):
        return model.runtime if model.head == STATES else None
    from lightbert.nn.inference import TokenVectors
    from lightbert.tasks.predict.torch_runtime import TorchRuntime, place

    return TorchRuntime(TokenVectors(place(model, device)))
