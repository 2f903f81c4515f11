"""Heads: from the encoder's states to logits. The losses are in `objectives`."""

from lightbert.nn.heads.pretraining import MaskedLanguage, ReplacedToken
from lightbert.nn.heads.span import BeamSpan, Candidates, JointLogits, Span, SpanLogits
from lightbert.nn.heads.text import Classification, MultipleChoice, NextSentence, Pooler, Projection, Regression
from lightbert.nn.heads.token import TokenClassification

__all__ = [
    "BeamSpan",
    "Candidates",
    "Classification",
    "JointLogits",
    "MaskedLanguage",
    "MultipleChoice",
    "NextSentence",
    "Pooler",
    "Projection",
    "Regression",
    "ReplacedToken",
    "Span",
    "SpanLogits",
    "TokenClassification",
]
