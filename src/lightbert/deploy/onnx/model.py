"""A model with one of its heads as an ONNX graph."""

from lightbert.deploy.onnx.blocks import block, embeddings
from lightbert.deploy.onnx.graph import Graph, Output
from lightbert.deploy.onnx.heads import head, reads_first, text_head
from lightbert.deploy.onnx.inputs import Mask
from lightbert.deploy.onnx.streams import Stream
from lightbert.errors import unknown
from lightbert.nn.encoder import Encoder
from lightbert.tasks.predict.exported import STATES


def graph_of(
    encoder: Encoder, kind: str, *, folding: bool = True, int8: bool = False
) -> tuple[Graph, dict[str, Output]]:
    """The graph of an encoder with the head `kind`, or without one, and the names of its outputs.

    folding: as of `Graph`; without it, linear layers read what they read in the model.
    int8: as of `Graph`.
    """
    if kind != STATES and kind not in encoder.heads:
        raise unknown("head", kind, [*encoder.heads, STATES])
    graph = Graph(encoder, folding=folding, int8=int8)
    mask = Mask(graph, released=encoder.released_padding)
    embedded = embeddings(graph, encoder.embeddings, mask)
    x = Stream.plain(graph.reshape(embedded, -1, encoder.width), encoder.width)
    first_only = kind != STATES and reads_first(encoder.heads[kind])
    *others, last = encoder.blocks
    for each in others:
        x = block(graph, each, x, mask)
    x = block(graph, last, x, mask, first_only=first_only)
    if first_only:
        return graph, text_head(graph, encoder.heads[kind], x.real(graph))
    states = mask.texts(x.real(graph), encoder.width)
    if kind == STATES:
        return graph, {"last_hidden_state": Output(states, ("batch", "tokens", encoder.width))}
    return graph, head(graph, encoder, kind, states, mask)
