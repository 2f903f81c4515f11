"""The convolution kernels that a model has learned: fixed kernels per head, and depthwise kernels per channel."""

from torch import Tensor, nn

from lightbert.models import Model
from lightbert.nn.composite import CompositeAttention, ConvolutionalProjection
from lightbert.nn.convolution import Depthwise, SeparableConvolution


def fixed_kernels(model: Model) -> list[Tensor]:
    """The fixed lightweight convolution of each layer [H, 2R+1] (composite Eq. 4); empty if the model has none."""
    mixers = (block.get_submodule("mixer") for block in model.blocks)
    weights = (each.fixed for each in mixers if isinstance(each, CompositeAttention))
    return [each.detach().float() for each in weights if each is not None]


def depthwise_kernels(model: Model) -> dict[str, list[Tensor]]:
    """What is convolved -> the depthwise kernels of each layer, sorted: [channels, K]."""
    found: dict[str, list[Tensor]] = {}
    for block in model.blocks:
        mixer = block.get_submodule("mixer")
        for name, part in mixer.named_modules():
            if isinstance(part, Depthwise):
                found.setdefault(_use(mixer, name), []).append(sort_channels(part.weight.detach().float()))
    return found


def sort_channels(kernels: Tensor) -> Tensor:
    """Sort kernels [channels, K] by their weight for the next token minus that for the previous (composite Fig. 3)."""
    middle = kernels.shape[1] // 2
    if middle == 0:
        return kernels[kernels[:, 0].argsort()]
    return kernels[(kernels[:, middle + 1] - kernels[:, middle - 1]).argsort()]


def _use(mixer: nn.Module, name: str) -> str:
    """What the convolution with this name within a mixer convolves."""
    parent = mixer.get_submodule(name.rpartition(".")[0])
    match parent:
        case ConvolutionalProjection():
            return f"{name.partition('.')[0]} projection"
        case CompositeAttention() | SeparableConvolution():
            return "values"
    return "span-aware keys"
