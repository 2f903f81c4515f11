"""FLOPs of a forward pass: multiplications and additions of matrix products and convolutions.

A matmul of [m, n] and [n, p] has 2·m·n·p, a convolution tap 2 per channel. Norms, activations, softmaxes, biases and
lookups aren't counted. ConvBERT Table 9 and MobileBERT Table 4 use this convention; `size` has the other one.
"""

from torch import nn

from lightbert.nn.attention import Mixer
from lightbert.nn.convolution import Depthwise, DynamicConvolution
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import GroupedLinear
from lightbert.nn.heads import BeamSpan, MaskedLanguage, Pooler, TextHead
from lightbert.nn.norms import NoNorm


def flops(part: nn.Module, tokens: int) -> int:
    """Forward FLOPs of a module for a text of ``tokens`` tokens; an encoder is counted without heads.

    A module without a rule is the sum of its children and must not have parameters itself.
    """
    match part:
        case nn.LayerNorm() | NoNorm() | nn.Embedding():
            return 0
        case nn.Linear() | GroupedLinear() | Depthwise():
            return 2 * tokens * part.weight.numel()
        case Encoder():
            return flops(part.embeddings, tokens) + flops(part.blocks, tokens)
        case Pooler() | TextHead():
            return _children(part, 1)
        case MaskedLanguage():
            return flops(part.transform, tokens) + 2 * tokens * part.transform.out_features * part.bias.numel()
        case BeamSpan():
            starts = min(part.beam, tokens)
            # The joint layer is applied to starts, tokens and zeros; the output layer to the sums of all pairs.
            end = flops(part.end_dense, starts + tokens + 1) + flops(part.end_output, starts * tokens)
            answer = 2 * tokens * part.width + flops(part.answer_dense, 1) + flops(part.answer_output, 1)
            return flops(part.start, tokens) + end + answer
        case Mixer() | DynamicConvolution():
            return _children(part, tokens) + part.own_flops(tokens)
    if next(part.parameters(recurse=False), None) is not None:
        raise TypeError(f"no FLOP rule for {type(part).__name__}, which has parameters; add one to models/flops.py")
    return _children(part, tokens)


def _children(part: nn.Module, tokens: int) -> int:
    return sum(flops(child, tokens) for child in part.children())
