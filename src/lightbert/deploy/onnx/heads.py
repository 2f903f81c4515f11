"""Heads as nodes: from states to the named outputs of a graph."""

import numpy as np
from torch import nn

from lightbert.deploy.onnx.graph import Graph, Output, array_of
from lightbert.deploy.onnx.inputs import HIDDEN, SEGMENTS, Mask
from lightbert.deploy.onnx.layers import activation, linear, norm, unsupported
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import (
    BeamSpan,
    MaskedLanguage,
    Pooler,
    Regression,
    ReplacedToken,
    Span,
    TextHead,
    TokenClassification,
)

_ROW: tuple[str | int, ...] = ("batch",)
_TOKEN: tuple[str | int, ...] = ("batch", "tokens")
_CANDIDATE: tuple[str | int, ...] = ("batch", "candidates")


def head(graph: Graph, encoder: Encoder, kind: str, states: str, mask: Mask) -> dict[str, Output]:
    """The outputs by name, in the order of `lightbert.nn.inference`; the names are those of transformers' models."""
    part = encoder.heads[kind]
    match part:
        case TextHead():
            return text_head(graph, part, _pooled(graph, part, states, mask))
        case Span():
            start, end = graph.split(_linear(graph, part.output, states), [1, 1])
            ends = {"start_logits": start, "end_logits": end}
            return {name: Output(_squeeze(graph, value), _TOKEN) for name, value in ends.items()}
        case BeamSpan():
            return _beam(graph, part, states, mask)
        case MaskedLanguage():
            logits = _masked_language(graph, encoder, part, states)
            return {"logits": Output(logits, (*_TOKEN, len(encoder.table)))}
        case ReplacedToken():
            inner = activation(graph, part.activation, _linear(graph, part.dense, states))
            return {"logits": Output(_squeeze(graph, _linear(graph, part.output, inner)), _TOKEN)}
        case TokenClassification():
            return {"logits": Output(_linear(graph, part.output, states), (*_TOKEN, part.output.out_features))}
    raise unsupported(part)


def reads_first(part: nn.Module) -> bool:
    """Whether a head reads only the first token of each text, [CLS]."""
    return isinstance(part, Pooler) or (isinstance(part, TextHead) and part.pool == "cls")


def text_head(graph: Graph, part: nn.Module, vector: str) -> dict[str, Output]:
    """The outputs of a head that reads one vector per text [B, D]."""
    match part:
        case Pooler():
            pooled = graph.op("Tanh", linear(graph, part.dense, vector))
            return {"pooler_output": Output(pooled, (*_ROW, part.dense.out_features))}
        case TextHead():
            return {"logits": _logits(graph, part, vector)}
    raise unsupported(part)


def _pooled(graph: Graph, part: TextHead, states: str, mask: Mask) -> str:
    """The counterpart of `lightbert.nn.pooling`: [B, T, D] -> one vector per text."""
    pools = {"mean": (mask.mean,), "max": (mask.max,), "mean-max": (mask.mean, mask.max)}
    return graph.concat(*(pool(states) for pool in pools[part.pool]))


def _linear(graph: Graph, layer: nn.Module, states: str) -> str:
    """A linear layer on states [B, T, D]."""
    return linear(graph, layer, states, matrix=False)


def _logits(graph: Graph, part: TextHead, vector: str) -> Output:
    if part.dense is not None:
        vector = activation(graph, part.activation, linear(graph, part.dense, vector))
    logits = linear(graph, part.output, vector)
    if isinstance(part, Regression):
        return Output(_squeeze(graph, logits), _ROW)
    return Output(logits, (*_ROW, part.output.out_features))


def _masked_language(graph: Graph, encoder: Encoder, part: MaskedLanguage, states: str) -> str:
    transformed = activation(graph, part.activation, _linear(graph, part.transform, states))
    features = norm(graph, part.norm, transformed, matrix=False)
    name, table, bias = graph.path(part), array_of(encoder.table), array_of(part.bias)
    word = f"{graph.path(encoder.embeddings.get_submodule('word'))}.weight"
    if part.extra is None:
        return graph.linear(features, f"{name}.decoder", table.T, bias, table=word, matrix=False)
    extra = array_of(part.extra)
    tied, untied = graph.split(features, [part.narrow, extra.shape[1]])
    logits = graph.linear(tied, f"{name}.decoder", table.T, bias, table=word, matrix=False)
    return graph.op("Add", logits, graph.linear(untied, f"{name}.extra", extra.T, None, matrix=False))


def _beam(graph: Graph, part: BeamSpan, states: str, mask: Mask) -> dict[str, Output]:
    """ELECTRA's joint prediction and its beam search, as `BeamSpan.search`."""
    beam = graph.op("Min", mask.tokens, graph.ints(part.beam))
    allowed = _answer_positions(graph, mask)  # [B, T]
    start = graph.op("Where", allowed, _squeeze(graph, _linear(graph, part.start, states)), graph.number(HIDDEN))
    _, considered = graph.ops("TopK", start, beam, outputs=2, axis=1)  # [B, S]
    index = graph.op("Unsqueeze", considered, graph.ints(2))
    at_start = graph.op("GatherND", states, index, batch_dims=1)  # [B, S, D]

    name, weight, bias = graph.path(part.end_dense), array_of(part.end_dense.weight).T, array_of(part.end_dense.bias)
    given = graph.linear(at_start, f"{name}.start", weight[: part.width], bias, matrix=False)
    of_token = graph.linear(states, f"{name}.token", weight[part.width :], None, matrix=False)
    pairs = graph.op("Add", graph.op("Unsqueeze", given, graph.ints(2)), graph.op("Unsqueeze", of_token, graph.ints(1)))
    end = _squeeze(graph, _linear(graph, part.end_output, activation(graph, part.activation, pairs)))  # [B, S, T]
    end = graph.op("Where", graph.op("Unsqueeze", allowed, graph.ints(1)), end, graph.number(HIDDEN))

    starts = graph.op("GatherElements", graph.op("LogSoftmax", start, axis=-1), considered, axis=1)  # [B, S]
    ends, last = graph.ops("TopK", graph.op("LogSoftmax", end, axis=-1), beam, outputs=2, axis=2)  # [B, S, E]
    joint = graph.op("Add", graph.op("Unsqueeze", starts, graph.ints(2)), ends)
    scores = graph.reshape(joint, 0, -1)
    score, order = graph.ops("TopK", scores, graph.op("Shape", scores, start=1, end=2), outputs=2, axis=1)
    first = graph.reshape(graph.op("Expand", index, graph.op("Shape", last)), 0, -1)
    return {
        "start": Output(graph.op("GatherElements", first, order, axis=1), _CANDIDATE, integer=True),
        "end": Output(graph.op("GatherElements", graph.reshape(last, 0, -1), order, axis=1), _CANDIDATE, integer=True),
        "score": Output(score, _CANDIDATE),
        "impossible": Output(_impossible(graph, part, states, start), _ROW),
    }


def _impossible(graph: Graph, part: BeamSpan, states: str, start: str) -> str:
    probabilities = graph.op("Unsqueeze", graph.softmax(start), graph.ints(1))  # [B, 1, T]
    expected = graph.op("Squeeze", graph.op("MatMul", probabilities, states), graph.ints(1))
    first = graph.op("Gather", states, graph.constant("zero", np.array(0)), axis=1)
    inner = activation(graph, part.activation, linear(graph, part.answer_dense, graph.concat(first, expected)))
    return _squeeze(graph, linear(graph, part.answer_output, inner))


def _answer_positions(graph: Graph, mask: Mask) -> str:
    """Where an answer may start and end [B, T]: the second segment, and [CLS]."""
    second = graph.op("And", graph.op("Equal", SEGMENTS, graph.ints(1)), mask.real)
    zero, one = graph.constant("zero", np.array(0)), graph.constant("one", np.array(1))
    place = graph.op("Range", zero, graph.op("Squeeze", mask.tokens, graph.ints(0)), one)
    return graph.op("Or", second, graph.op("Equal", place, zero))


def _squeeze(graph: Graph, x: str) -> str:
    return graph.op("Squeeze", x, graph.ints(-1))
