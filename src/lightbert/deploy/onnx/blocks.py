"""Embeddings, feed-forwards and blocks as nodes."""

from torch import nn

from lightbert.deploy.onnx.graph import Graph, array_of
from lightbert.deploy.onnx.inputs import IDS, SEGMENTS, Mask
from lightbert.deploy.onnx.layers import linear, linear_activation, linear_norm, norm, residual_norm, unsupported
from lightbert.deploy.onnx.mixers import mixer
from lightbert.deploy.onnx.streams import Stream
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.embeddings import Embeddings, PositionSegmentEmbeddings, TrigramEmbeddings
from lightbert.nn.feedforward import FeedForward


def embeddings(graph: Graph, part: nn.Module, mask: Mask) -> str:
    """Ids [B, T] -> [B, T, D]."""
    match part:
        case Embeddings():
            words = graph.lookup(IDS, part.word, array_of(part.word.weight))
            x = norm(graph, part.norm, _positions_and_segments(graph, part, words, mask), matrix=False)
            return x if part.project is None else linear(graph, part.project, x, matrix=False)
        case TrigramEmbeddings():
            words = mask.zero_padding(graph.lookup(IDS, part.word, array_of(part.word.weight)))
            padded = graph.op("Pad", words, graph.ints(0, 1, 0, 0, 1, 0))
            previous, following = (
                graph.slice(padded, graph.ints(start), graph.op("Add", mask.tokens, graph.ints(start)), 1)
                for start in (0, 2)
            )
            x = linear(graph, part.project, graph.concat(following, words, previous), matrix=False)
            return norm(graph, part.norm, _positions_and_segments(graph, part, x, mask), matrix=False)
    raise unsupported(part)


def _positions_and_segments(graph: Graph, part: PositionSegmentEmbeddings, x: str, mask: Mask) -> str:
    x = graph.op("Add", x, graph.lookup(SEGMENTS, part.segment, array_of(part.segment.weight)))
    if part.position is None:
        return x
    return graph.op("Add", x, graph.lookup(mask.positions, part.position, array_of(part.position.weight)))


def block(graph: Graph, part: nn.Module, x: Stream, mask: Mask, *, first_only: bool = False) -> Stream:
    """[N, D] -> [N, D], or the first token of each text [B, D]: the mixer reads all tokens, the rest of a block one."""

    def wanted(states: Stream) -> Stream:
        return states.first(mask) if first_only else states

    match part:
        case PostNormBlock():
            mixed, x = wanted(mixer(graph, part.mixer, x, mask)), wanted(x)
            return feedforward(graph, part.feedforward, residual_norm(graph, part.output, part.norm, mixed, x))
        case BottleneckBlock():
            inside = linear_norm(graph, part.enter, part.enter_norm, x)
            if part.shared is not None and part.shared_norm is not None:
                shared = linear_norm(graph, part.shared, part.shared_norm, x)
                mixed = mixer(graph, part.mixer, shared, mask, x)
            else:
                mixed = mixer(graph, part.mixer, x if part.wide else inside, mask)
            mixed, inside, x = wanted(mixed), wanted(inside), wanted(x)
            inside = feedforward(graph, part.feedforward, residual_norm(graph, part.output, part.norm, mixed, inside))
            return residual_norm(graph, part.leave, part.leave_norm, inside, x)
    raise unsupported(part)


def feedforward(graph: Graph, part: nn.Module, x: Stream) -> Stream:
    """[N, D] -> [N, D]."""
    match part:
        case FeedForward():
            inner = linear_activation(graph, part.up, part.activation, x)
            return residual_norm(graph, part.down, part.norm, inner, x)
        case nn.Sequential():
            for each in part:
                x = feedforward(graph, each, x)
            return x
    raise unsupported(part)
