"""The distance biases of composite attention as nodes."""

from lightbert.deploy.onnx.graph import Graph
from lightbert.deploy.onnx.inputs import Mask


def distance_bias(graph: Graph, weights: str, offsets: int, outside: str, by: str, mask: Mask) -> str:
    """Spread weights [B or 1, H, T, 2R+1] by offset over queries and keys: [B or 1, H, T, T].

    The weights are padded by T on both sides, with the outermost weight or zeros. Read as rows that are shorter by
    one, the weights of token i are moved i places to the right, so that offset 0 is on the diagonal.
    by: "query" if the rows of `weights` are queries, "key" if they are keys.
    """
    tokens, radius = mask.tokens, offsets // 2
    # One row more than needed, so that the rows that are read don't end beyond the last element.
    pads = graph.once(
        "distance pads", lambda: graph.concat(graph.ints(0, 0, 0), tokens, graph.ints(0, 0, 1), tokens, axis=0)
    )
    padded = graph.op("Pad", weights, pads, mode="edge" if outside == "clamp" else "constant")
    flat = graph.reshape(padded, 0, 0, -1)  # [B, H, (T + 1)·(2R + 1 + 2T)]
    shorter = graph.once(
        ("shorter rows", offsets),
        lambda: graph.op("Add", graph.op("Mul", tokens, graph.ints(2)), graph.ints(offsets - 1)),
    )
    start = graph.once(("first offset", radius), lambda: graph.op("Add", tokens, graph.ints(radius)))
    end = graph.once(("last offset", offsets), lambda: graph.op("Add", start, graph.op("Mul", tokens, shorter)))
    shape = graph.once(("rows", offsets), lambda: graph.concat(graph.ints(0, 0), tokens, shorter, axis=0))
    rows = graph.op("Reshape", graph.slice(flat, start, end, 2), shape)
    bias = graph.slice(rows, graph.ints(0), tokens, 3)
    return bias if by == "query" else graph.transpose(bias, 0, 1, 3, 2)
