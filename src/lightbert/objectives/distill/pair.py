"""Compatibility checks of a teacher and a student, and copying of embeddings and heads."""

from typing import Literal

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.attention import Attention
from lightbert.nn.encoder import Encoder
from lightbert.nn.local import LocalAttention
from lightbert.objectives.distill.stages import Transfer

_SAME_TOKENIZER = "prepare the student's text with the teacher's tokenizer (lightbert prepare --tokenizer)"


def check_pair(teacher: Model, student: Model, transfer: Transfer | None) -> None:
    """Check that a teacher and a student are compatible; without a transfer only the vocabularies must match."""
    vocab, taught_vocab = student.table.shape[0], teacher.table.shape[0]
    if vocab != taught_vocab:
        raise InputError(
            f"teacher and student must have the same vocabulary, got {taught_vocab} and {vocab} entries; "
            f"{_SAME_TOKENIZER}"
        )
    if _vocabulary(teacher) != _vocabulary(student) and None not in (teacher.tokenizer, student.tokenizer):
        raise InputError(
            f"teacher and student must have the same vocabulary, but their token ids differ; {_SAME_TOKENIZER}"
        )
    if transfer is None:
        return
    if len(teacher.blocks) != len(student.blocks):
        raise InputError(
            f"teacher and student must have the same number of layers, got {len(teacher.blocks)} and "
            f"{len(student.blocks)}; make the depths equal or use strategy=pd"
        )
    if teacher.width != student.width and transfer.maps == "none":
        raise InputError(
            f"teacher and student must have the same width, got {teacher.width} and {student.width}; "
            "make the widths equal or learn maps between them with transfer.maps=linear"
        )
    if teacher.released_padding != student.released_padding:
        wanted, padding = (("masked", "released")[model.released_padding] for model in (teacher, student))
        raise InputError(
            f"teacher and student must have the same padding, got '{wanted}' and '{padding}'; "
            f"use change.padding={wanted}"
        )
    if transfer.attention and not shared_heads(teacher, student):
        raise InputError(
            f"attention transfer requires the same number of heads, got {_heads(teacher)[0]} for the teacher and "
            f"{_heads(student)[0]} for the student; make them equal or use transfer.attention=0"
        )


def shared_heads(teacher: Model, student: Model) -> int:
    """Return how many attention heads can be compared, the first ones; 0 if the numbers of heads differ.

    A mixer with convolution heads has fewer attention heads than heads; its attention heads keep their indices.
    """
    (taught, taught_attention), (learned, learned_attention) = _heads(teacher), _heads(student)
    return min(taught_attention, learned_attention) if taught == learned else 0


def copy_embeddings(
    teacher: Encoder, student: Encoder, *, norm: Literal["identity", "copy", "train"] = "identity"
) -> frozenset[str]:
    """Copy embeddings and pre-training heads where shapes match; return the names of embeddings left to train.

    Tables and the projection are copied one by one if the shapes match; of the position table, as many rows as the
    student has. A head is copied completely or not at all: the MLM head only together with the table it is tied to (the
    student keeps its activation, as in the released code), the next-sentence head only if both read the same [CLS]
    state, pooled or not.
    Deviation: the released code copies the teacher's last layer to the student, which has no pooler, although that
    layer was trained on pooled states.

    The embedding norm is copied if both have the same kind. A student without normalisation can't use the teacher's:
    with "identity" its scale and shift stay 1 and 0 until the prediction stage, as in the released code; with "copy" it
    takes the teacher's scale and shift, still without normalising; with "train" it starts as the identity and is
    trained from the first stage on.
    """
    targets, sources = (dict(model.embeddings.named_parameters()) for model in (student, teacher))
    same_norm = type(student.embeddings.get_submodule("norm")) is type(teacher.embeddings.get_submodule("norm"))
    if not same_norm and norm != "copy":
        sources = {name: table for name, table in sources.items() if not name.startswith("norm.")}
    left = {name for name, p in targets.items() if not _copy(sources.get(name), p, rows=name == "position.weight")}
    if "word.weight" not in left:
        _copy_head(teacher, student, "mlm")
        if not same_norm and norm == "identity":
            left -= {"norm.weight", "norm.bias"}
    _copy_head(teacher, student, "nsp")
    return frozenset(f"embeddings.{name}" for name in left)


@torch.no_grad()
def _copy(source: Tensor | None, target: Tensor, *, rows: bool = False) -> bool:
    """Copy if the shapes match; with ``rows``, also the first rows of a longer table. Return whether it was copied."""
    if source is not None and rows and source.shape[0] > target.shape[0]:
        source = source[: target.shape[0]]
    if source is None or source.shape != target.shape:
        return False
    target.copy_(source)
    return True


def _copy_head(teacher: Encoder, student: Encoder, kind: str) -> None:
    if kind not in teacher.heads or kind not in student.heads:
        return
    source, target = teacher.heads[kind].state_dict(), student.heads[kind].state_dict()
    if {n: t.shape for n, t in source.items()} == {n: t.shape for n, t in target.items()}:
        student.heads[kind].load_state_dict(source)


def _heads(model: Model) -> tuple[int, int]:
    """Return the number of heads of a model's mixer, and of its attention heads."""
    mixer: nn.Module = model.blocks[0].get_submodule("mixer")
    attending = mixer.n_heads if isinstance(mixer, Attention) else 0
    has_others = isinstance(mixer, LocalAttention) or getattr(mixer, "convolution", None) is not None
    return (model.config.n_heads if has_others else attending), attending


def _vocabulary(model: Model) -> dict[str, int] | None:
    return None if model.tokenizer is None else model.tokenizer.get_vocab()
