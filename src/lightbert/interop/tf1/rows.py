"""Rows of rename tables for what TensorFlow's layers call their variables."""

from lightbert.interop.keymap import Row


def dense(ours: str, theirs: str) -> tuple[Row, ...]:
    """`tf.layers.dense`: the kernel is [in, out]."""
    return Row(f"{ours}.weight", f"{theirs}/kernel", "transpose"), Row(f"{ours}.bias", f"{theirs}/bias")


def grouped(ours: str, theirs: str) -> tuple[Row, ...]:
    """ConvBERT's grouped layer: the kernel is [g, in/g, out/g], as ours."""
    return Row(f"{ours}.weight", f"{theirs}/kernel"), Row(f"{ours}.bias", f"{theirs}/bias")


def norm(ours: str, theirs: str) -> tuple[Row, ...]:
    """`tf.contrib.layers.layer_norm`, and MobileBERT's scale and shift in place of it."""
    return Row(f"{ours}.weight", f"{theirs}/gamma"), Row(f"{ours}.bias", f"{theirs}/beta")


def tables(scope: str) -> tuple[Row, ...]:
    """The three tables of the embeddings."""
    return (
        Row("embeddings.word.weight", f"{scope}/embeddings/word_embeddings"),
        Row("embeddings.position.weight", f"{scope}/embeddings/position_embeddings"),
        Row("embeddings.segment.weight", f"{scope}/embeddings/token_type_embeddings"),
    )


def attention(layer: str) -> tuple[Row, ...]:
    """Queries, keys, values and the projection back."""
    return (
        *dense("blocks.{i}.mixer.query", f"{layer}/attention/self/query"),
        *dense("blocks.{i}.mixer.key", f"{layer}/attention/self/key"),
        *dense("blocks.{i}.mixer.value", f"{layer}/attention/self/value"),
        *dense("blocks.{i}.output", f"{layer}/attention/output/dense"),
    )
