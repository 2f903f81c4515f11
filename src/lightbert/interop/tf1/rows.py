"""Keymap rows for the variable names of TensorFlow's layers."""

from lightbert.interop.keymap import Row


def dense(ours: str, theirs: str) -> tuple[Row, ...]:
    """`tf.layers.dense`: the kernel is [in, out]."""
    return Row(f"{ours}.weight", f"{theirs}/kernel", "transpose"), Row(f"{ours}.bias", f"{theirs}/bias")


def grouped(ours: str, theirs: str) -> tuple[Row, ...]:
    """ConvBERT's grouped layer: the kernel is [g, in/g, out/g], like ours."""
    return Row(f"{ours}.weight", f"{theirs}/kernel"), Row(f"{ours}.bias", f"{theirs}/bias")


def norm(ours: str, theirs: str) -> tuple[Row, ...]:
    """`tf.contrib.layers.layer_norm`, or MobileBERT's NoNorm."""
    return Row(f"{ours}.weight", f"{theirs}/gamma"), Row(f"{ours}.bias", f"{theirs}/beta")


def tables(scope: str) -> tuple[Row, ...]:
    """The word, position and segment embeddings."""
    return (
        Row("embeddings.word.weight", f"{scope}/embeddings/word_embeddings"),
        Row("embeddings.position.weight", f"{scope}/embeddings/position_embeddings"),
        Row("embeddings.segment.weight", f"{scope}/embeddings/token_type_embeddings"),
    )


def attention(layer: str) -> tuple[Row, ...]:
    """Query, key, value and output projections."""
    return (
        *dense("blocks.{i}.mixer.query", f"{layer}/attention/self/query"),
        *dense("blocks.{i}.mixer.key", f"{layer}/attention/self/key"),
        *dense("blocks.{i}.mixer.value", f"{layer}/attention/self/value"),
        *dense("blocks.{i}.output", f"{layer}/attention/output/dense"),
    )
