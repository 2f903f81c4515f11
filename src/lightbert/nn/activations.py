"""The activation functions that the papers use, by name."""

from torch import nn

from lightbert.errors import unknown


def activation(name: str) -> nn.Module:
    """Build gelu (the erf form: BERT, ELECTRA, ConvBERT), gelu_tanh (IB-BERT), relu (MobileBERT) or relu6 (its QAT)."""
    match name:
        case "gelu":
            return nn.GELU()
        case "gelu_tanh":
            return nn.GELU(approximate="tanh")
        case "relu":
            return nn.ReLU()
        case "relu6":
            return nn.ReLU6()
    raise unknown("activation", name, ["gelu", "gelu_tanh", "relu", "relu6"])
