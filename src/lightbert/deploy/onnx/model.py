"""A model with one of its heads as an ONNX graph: mixers, blocks, embeddings, heads."""

import math

import numpy as np
from torch import nn

from lightbert.deploy.onnx.graph import Graph, Output, Stream, array_of
from lightbert.deploy.onnx.layers import (
    activation,
    convolution,
    depthwise,
    distance_bias,
    linear,
    linear_activation,
    linear_norm,
    norm,
    product,
    residual_norm,
    unsupported,
    window_sum,
)
from lightbert.deploy.onnx.mask import FLOAT, HIDDEN, IDS, INT64, SEGMENTS, Mask
from lightbert.errors import unknown
from lightbert.nn.attention import Attention, ConvolutionalProjection, SelfAttention
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.embeddings import Embeddings, PositionSegmentEmbeddings, TrigramEmbeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.heads import (
    BeamSpan,
    MaskedLanguage,
    Pooler,
    Projection,
    Regression,
    ReplacedToken,
    Span,
    TextHead,
    TokenClassification,
)
from lightbert.nn.inference import reads_words_alone
from lightbert.nn.local import LocalAttention
from lightbert.nn.pooling_settings import Pooling
from lightbert.nn.words import SLOTS, Words
from lightbert.tasks.predict.exported import STATES

_ROW: tuple[str | int, ...] = ("batch",)
_TOKEN: tuple[str | int, ...] = ("batch", "tokens")
_CANDIDATE: tuple[str | int, ...] = ("batch", "candidates")


def graph_of(
    encoder: Encoder, kind: str, *, pooling: Pooling | None = None, folding: bool = True, int8: bool = False
) -> tuple[Graph, dict[str, Output]]:
    """The graph of an encoder with the head `kind`, or without one, and the names of its outputs.

    pooling: compute the vectors of a sentence encoder.
    folding: as of `Graph`; without it, linear layers read what they read in the model.
    int8: as of `Graph`.
    """
    if kind != STATES and kind not in encoder.heads and pooling is None:
        raise unknown("head", kind, [*encoder.heads, STATES])
    graph = Graph(encoder, folding=folding, int8=int8)
    mask = Mask(graph, released=encoder.released_padding)
    without = kind == STATES or (pooling is not None and not pooling.projection)
    head = None if without else encoder.heads[kind]
    if head is not None and reads_words_alone(head):
        return graph, text_head(graph, head, "", mask)
    embedded = embeddings(graph, encoder.embeddings, mask)
    x = Stream.plain(graph.reshape(embedded, -1, encoder.width), encoder.width)
    pool = head.pool if isinstance(head, TextHead) else pooling.pool if pooling is not None else ""
    first_only = isinstance(head, Pooler) or pool == "cls"
    for number, part in enumerate(encoder.blocks, start=1):
        x = block(graph, part, x, mask, first_only=first_only and number == len(encoder.blocks))
    states = x.real(graph) if first_only else mask.texts(x.real(graph), encoder.width)
    if pooling is not None:
        vector = Output(states if first_only else mask.pooled(states, pool), (*_ROW, encoder.width))
        if head is not None:
            (vector,) = text_head(graph, head, vector.value, mask).values()
        if pooling.normalize:
            vector = Output(graph.op("LpNormalization", vector.value, axis=-1, p=2), vector.shape)
        return graph, {"sentence_embedding": vector}
    if head is None:
        return graph, {"last_hidden_state": Output(states, (*_TOKEN, encoder.width))}
    if first_only:
        return graph, text_head(graph, head, states, mask)
    return graph, head_outputs(graph, encoder, head, states, mask)


def embeddings(graph: Graph, part: nn.Module, mask: Mask) -> str:
    """Ids [B, T] -> [B, T, D]."""
    match part:
        case Embeddings():
            words = graph.lookup(IDS, part.word)
            x = norm(graph, part.norm, _positions_and_segments(graph, part, words, mask), matrix=False)
            return x if part.project is None else linear(graph, part.project, x, matrix=False)
        case TrigramEmbeddings():
            words = mask.zero_padding(graph.lookup(IDS, part.word))
            padded = graph.op("Pad", words, graph.ints(0, 1, 0, 0, 1, 0))
            previous, following = (
                graph.slice(padded, graph.ints(start), graph.op("Add", mask.tokens, graph.ints(start)), 1)
                for start in (0, 2)
            )
            x = linear(graph, part.project, graph.concat(following, words, previous), matrix=False)
            return norm(graph, part.norm, _positions_and_segments(graph, part, x, mask), matrix=False)
    raise unsupported(part)


def _positions_and_segments(graph: Graph, part: PositionSegmentEmbeddings, x: str, mask: Mask) -> str:
    x = graph.op("Add", x, graph.lookup(SEGMENTS, part.segment))
    return x if part.position is None else graph.op("Add", x, graph.lookup(mask.positions, part.position))


def block(graph: Graph, part: nn.Module, x: Stream, mask: Mask, *, first_only: bool = False) -> Stream:
    """[N, D] -> [N, D], or the first token of each text [B, D]: the mixer reads all tokens, the rest of a block one."""

    def select(stream: Stream) -> Stream:
        if not first_only:
            return stream
        return Stream(mask.first(stream.rows, len(stream.scale)), stream.scale, stream.shift)

    match part:
        case PostNormBlock():
            mixed, x = select(mixer(graph, part.mixer, x, mask)), select(x)
            return feedforward(graph, part.feedforward, residual_norm(graph, part.output, part.norm, mixed, x))
        case BottleneckBlock():
            inside = linear_norm(graph, part.enter, part.enter_norm, x)
            if part.shared is not None and part.shared_norm is not None:
                shared = linear_norm(graph, part.shared, part.shared_norm, x)
                mixed = mixer(graph, part.mixer, shared, mask, x)
            else:
                mixed = mixer(graph, part.mixer, x if part.wide else inside, mask)
            mixed, inside, x = select(mixed), select(inside), select(x)
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
            for layer in part:
                x = feedforward(graph, layer, x)
            return x
    raise unsupported(part)


def mixer(graph: Graph, part: nn.Module, x: Stream, mask: Mask, value: Stream | None = None) -> Stream:
    """A mixer: [N, D] -> [N, out_width]."""
    value = value or x
    match part:
        case SelfAttention():
            beside = part.convolution
            if beside is not None and graph.int8:
                # The convolution reads zeros in the padding. All layers do, so that their input is quantized once.
                zeroed = Stream.plain(mask.zero_rows(x.real(graph)), len(x.scale))
                x, value = zeroed, zeroed if value is x else value
            shares = beside is not None and beside.shares_values
            if part.has_biases or part.depthwise is not None or shares or part.linear_projections() is None:
                rows, query, values = _composite(graph, part, x, value, mask)
                attended = Stream.plain(rows, part.n_heads * part.head_width)
            else:
                attended, query = _self_attention(graph, part, x, value, mask)
                values = ""
            if beside is None:
                return attended.settled(graph)
            convolved = convolution(graph, beside, x, query, value, mask, values if shares else "")
            shift = np.concatenate([attended.shift, np.zeros(beside.out_width, np.float32)])
            rows = graph.concat(attended.rows, convolved)
            if convolved in graph.factors and attended.rows in graph.factors:
                graph.factors[rows] = graph.factors[attended.rows] + graph.factors[convolved]
            return Stream.shifted(rows, shift).settled(graph)
        case LocalAttention():
            return Stream.plain(_local(graph, part, x, value, mask), part.out_width)
    raise unsupported(part)


def _self_attention(graph: Graph, part: SelfAttention, x: Stream, value: Stream, mask: Mask) -> tuple[Stream, str]:
    """The attention heads [N, H·E], and the queries.

    Two biases aren't computed. That of the keys changes all scores of a query by the same number, which the softmax
    ignores. That of the values is added to each result, because weights sum to one, so it becomes a shift.
    """
    width = part.n_heads * part.head_width
    query = linear(graph, part.query, x)
    key, _ = product(graph, part.key, x, 1 / math.sqrt(part.head_width))
    values, shift = product(graph, part.value, value)
    attended = _attention(graph, (query, key, values), part.n_heads, width, mask)
    graph.factors[attended] = (values,)
    return Stream.shifted(attended, shift), query


def _attention(
    graph: Graph, projected: tuple[str, str, str], n_heads: int, width: int, mask: Mask, bias: str = ""
) -> str:
    """Attention with scaled keys: query, key and values [N, width] -> [N, width]; `bias` replaces that of the mask."""
    texts = (mask.texts(rows, width) for rows in projected)
    heads = {"q_num_heads": n_heads, "kv_num_heads": n_heads, "scale": 1.0}
    return graph.reshape(graph.op("Attention", *texts, bias or mask.pairs, **heads), -1, width)


def _composite(graph: Graph, part: SelfAttention, x: Stream, value: Stream, mask: Mask) -> tuple[str, str, str]:
    """The attention heads [N, H·E], the queries and the values."""
    # The keys are scaled by 1/√E, which is cheaper than to scale the scores.
    query = _projection(graph, part.query, x, mask)
    key = _projection(graph, part.key, x, mask, 1 / math.sqrt(part.head_width))
    values = _projection(graph, part.value, value, mask)
    bias = _distance_bias(graph, part, query, key, mask)
    attended = _attention(graph, (query, key, values), part.n_heads, part.n_heads * part.head_width, mask, bias)
    if part.depthwise is not None:
        attended = graph.op("Add", attended, depthwise(graph, part.depthwise, values, mask).real(graph))
    return attended, query, values


def _distance_bias(graph: Graph, part: Attention, query: str, key: str, mask: Mask) -> str:
    """What the scores add by distance, with the mask [B, H, T, T], from queries and scaled keys; "" if nothing."""

    def by_offset(projected: str, name: str, weight: np.ndarray) -> str:
        """The weights of each token by offset, [B, H, T, 2R+1]."""
        heads = graph.transpose(mask.texts(projected, part.n_heads, -1), 0, 2, 1, 3)
        return graph.op("MatMul", heads, graph.parameter(part, name, weight))

    by_query = by_key = None
    if part.query_dynamic is not None:
        scale = np.float32(1 / math.sqrt(part.query_dynamic.shape[0]))
        by_query = by_offset(query, "query_dynamic", array_of(part.query_dynamic) * scale)
    if part.fixed is not None:
        fixed = graph.parameter(part, "fixed", array_of(part.fixed)[None, :, None, :])
        if by_query is None:
            like = graph.concat(graph.ints(1, 1), mask.tokens, graph.ints(1), axis=0)
            by_query = graph.op("Expand", fixed, like)
        else:
            by_query = graph.op("Add", by_query, fixed)
    if part.key_dynamic is not None:
        by_key = by_offset(key, "key_dynamic", array_of(part.key_dynamic))
    bias = ""
    for weights, by in ((by_query, "query"), (by_key, "key")):
        if weights is not None:
            spread = distance_bias(graph, weights, part.offsets, part.outside, by, mask)
            bias = graph.op("Add", spread, bias or mask.attention)
    return bias


def _projection(graph: Graph, layer: nn.Module, x: Stream, mask: Mask, scale: float = 1.0) -> str:
    if isinstance(layer, ConvolutionalProjection):
        rows = depthwise(graph, layer.convolution, x.real(graph), mask)
        convolved = linear(graph, layer.convolved, rows, scale=scale)
        return graph.concat(convolved, linear(graph, layer.direct, x, scale=scale))
    return linear(graph, layer, x, scale=scale)


def _local(graph: Graph, part: LocalAttention, x: Stream, value: Stream, mask: Mask) -> str:
    half = part.out_width // 2
    query = linear(graph, part.query, x)
    key, _ = product(graph, part.key, x, 1 / math.sqrt(half // part.n_heads))
    values, local_values = graph.split(linear(graph, part.value, value), [half, half])
    bias = _distance_bias(graph, part, query, key, mask)
    attended = _attention(graph, (query, key, values), part.n_heads, half, mask, bias)
    span_key = linear(graph, part.pointwise, depthwise(graph, part.depthwise, x.real(graph), mask))
    span = graph.op("Mul", query, span_key)
    logits = mask.texts(linear(graph, part.kernel, span), part.n_heads, part.taps)  # [B, T, H, K]
    if part.indexed_by == "key":
        logits = _kernel_of_neighbour(graph, logits, part.taps, mask)
    weights = graph.softmax(graph.op("Where", mask.taps(part.taps), logits, graph.number(HIDDEN)))
    sizes, kernels = (part.n_heads, half // part.n_heads, part.taps), graph.reshape(weights, -1, part.taps)
    return graph.concat(attended, window_sum(graph, local_values, kernels, sizes, mask, masked=True))


def _kernel_of_neighbour(graph: Graph, logits: str, kernel: int, mask: Mask) -> str:
    """Take tap j from the kernel of the token that tap j reads: [B, T, H, K] -> [B, T, H, K]."""
    radius = kernel // 2
    padded = graph.op("Pad", logits, graph.ints(0, radius, 0, 0, 0, radius, 0, 0))
    columns = graph.split(padded, [1] * kernel)
    return graph.concat(
        *(
            graph.slice(column, graph.ints(tap), graph.op("Add", mask.tokens, graph.ints(tap)), 1)
            for tap, column in enumerate(columns)
        )
    )


def head_outputs(graph: Graph, encoder: Encoder, part: nn.Module, states: str, mask: Mask) -> dict[str, Output]:
    """The outputs of a head by name, in the order of `lightbert.nn.inference`; transformers' names."""

    def dense(layer: nn.Module, x: str = states) -> str:
        return linear(graph, layer, x, matrix=False)

    match part:
        case TextHead():
            return text_head(graph, part, mask.pooled(states, part.pool), mask)
        case Span():
            start, end = graph.split(dense(part.output), [1, 1])
            ends = {"start_logits": start, "end_logits": end}
            return {name: Output(graph.squeeze(value), _TOKEN) for name, value in ends.items()}
        case BeamSpan():
            return _beam(graph, part, states, mask)
        case MaskedLanguage():
            features = norm(graph, part.norm, activation(graph, part.activation, dense(part.transform)), matrix=False)
            logits = _vocabulary_logits(graph, encoder, part, features)
            return {"logits": Output(logits, (*_TOKEN, len(encoder.table)))}
        case ReplacedToken():
            inner = activation(graph, part.activation, dense(part.dense))
            return {"logits": Output(graph.squeeze(dense(part.output, inner)), _TOKEN)}
        case TokenClassification():
            return {"logits": Output(dense(part.output), (*_TOKEN, part.output.out_features))}
    raise unsupported(part)


def text_head(graph: Graph, part: nn.Module, vector: str, mask: Mask) -> dict[str, Output]:
    """The outputs of a head that reads one vector per text [B, D]; "" for a head that reads words alone."""
    match part:
        case Pooler():
            pooled = graph.op("Tanh", linear(graph, part.dense, vector))
            return {"pooler_output": Output(pooled, (*_ROW, part.dense.out_features))}
        case TextHead():
            if part.dense is not None:
                vector = activation(graph, part.activation, linear(graph, part.dense, vector))
            if vector:
                logits = linear(graph, part.output, vector)
            else:
                logits = graph.parameter(part.output, "bias", array_of(part.output.bias))
            if part.words is not None:
                logits = graph.op("Add", _words(graph, part.words, mask), logits)
            if isinstance(part, Regression):
                return {"logits": Output(graph.squeeze(logits), _ROW)}
            if isinstance(part, Projection) and part.tanh:
                logits = graph.op("Tanh", logits)
            return {"logits": Output(logits, (*_ROW, part.output.out_features))}
    raise unsupported(part)


def _words(graph: Graph, part: Words, mask: Mask) -> str:
    """The counterpart of `lightbert.nn.words`: ids [B, T] to scores [B, C]."""

    def table(name: str) -> str:
        return graph.parameter(part, name, getattr(part, name).detach().cpu().numpy())

    def integers(x: str) -> str:
        return graph.op("Cast", x, to=INT64)

    one = graph.ints(1)
    first, second = graph.slice(IDS, graph.ints(0), graph.ints(-1), 1), graph.slice(IDS, one, mask.tokens, 1)
    keys = graph.op("Add", graph.op("Mul", first, graph.ints(part.vocab)), second)  # [B, T - 1]
    rows = integers(graph.op("Gather", table("slots"), graph.op("Mod", keys, graph.ints(SLOTS))))
    known = graph.op("Equal", graph.op("Gather", table("keys"), rows), keys)
    known = graph.op("And", known, graph.slice(mask.real, one, mask.tokens, 1))
    pairs = graph.op("Gather", table("pairs"), graph.op("Mul", rows, integers(known)))
    real = graph.unsqueeze(graph.op("Cast", mask.real, to=FLOAT), 2)
    pieces = graph.op("Mul", graph.op("Gather", table("pieces"), IDS), real)
    total = graph.op("Add", *(graph.op("ReduceSum", each, one, keepdims=0) for each in (pieces, pairs)))
    scores, size = graph.split(total, [part.pieces.shape[1] - 1, 1])
    return graph.op("Div", scores, graph.op("Sqrt", graph.op("Max", size, graph.number(1e-12))))


def _vocabulary_logits(graph: Graph, encoder: Encoder, part: MaskedLanguage, features: str) -> str:
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

    def dense(layer: nn.Module, x: str) -> str:
        return linear(graph, layer, x, matrix=False)

    beam = graph.op("Min", mask.tokens, graph.ints(part.beam))
    # An answer may start and end in the second segment, and at [CLS].
    second = graph.op("And", graph.op("Equal", SEGMENTS, graph.ints(1)), mask.real)
    place = graph.op("Range", graph.integer(0), graph.squeeze(mask.tokens, 0), graph.integer(1))
    allowed = graph.op("Or", second, graph.op("Equal", place, graph.integer(0)))  # [B, T]
    start = graph.op("Where", allowed, graph.squeeze(dense(part.start, states)), graph.number(HIDDEN))
    _, considered = graph.ops("TopK", start, beam, outputs=2, axis=1)  # [B, S]
    index = graph.unsqueeze(considered, 2)
    at_start = graph.op("GatherND", states, index, batch_dims=1)  # [B, S, D]

    name, weight, bias = graph.path(part.end_dense), array_of(part.end_dense.weight).T, array_of(part.end_dense.bias)
    of_start = graph.linear(at_start, f"{name}.start", weight[: part.width], bias, matrix=False)
    of_token = graph.linear(states, f"{name}.token", weight[part.width :], None, matrix=False)
    pairs = graph.op("Add", graph.unsqueeze(of_start, 2), graph.unsqueeze(of_token, 1))
    end = graph.squeeze(dense(part.end_output, activation(graph, part.activation, pairs)))  # [B, S, T]
    end = graph.op("Where", graph.unsqueeze(allowed, 1), end, graph.number(HIDDEN))

    starts = graph.op("GatherElements", graph.op("LogSoftmax", start, axis=-1), considered, axis=1)  # [B, S]
    ends, last = graph.ops("TopK", graph.op("LogSoftmax", end, axis=-1), beam, outputs=2, axis=2)  # [B, S, E]
    scores = graph.reshape(graph.op("Add", graph.unsqueeze(starts, 2), ends), 0, -1)
    score, order = graph.ops("TopK", scores, graph.op("Shape", scores, start=1, end=2), outputs=2, axis=1)
    first = graph.reshape(graph.op("Expand", index, graph.op("Shape", last)), 0, -1)
    last = graph.reshape(last, 0, -1)

    probabilities = graph.unsqueeze(graph.softmax(start), 1)  # [B, 1, T]
    expected = graph.squeeze(graph.op("MatMul", probabilities, states), 1)
    cls = graph.op("Gather", states, graph.integer(0), axis=1)
    inner = activation(graph, part.activation, linear(graph, part.answer_dense, graph.concat(cls, expected)))
    impossible = graph.squeeze(linear(graph, part.answer_output, inner))
    return {
        "start": Output(graph.op("GatherElements", first, order, axis=1), _CANDIDATE, integer=True),
        "end": Output(graph.op("GatherElements", last, order, axis=1), _CANDIDATE, integer=True),
        "score": Output(score, _CANDIDATE),
        "impossible": Output(impossible, _ROW),
    }
