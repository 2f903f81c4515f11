"""Which teacher and student fit each other, and what is copied from one to the other."""

from typing import Literal

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.local import LocalAttention
from lightbert.nn.mixed import MixedAttention
from lightbert.objectives.distill.transfer_settings import Transfer

_SAME_WORDS = "train the student on text that was prepared with the teacher's tokenizer (lightbert prepare --tokenizer)"


def check_pair(teacher: Model, student: Model, transfer: Transfer | None) -> None:
    """Say in one sentence why a teacher cannot teach a student; without a transfer only words have to agree."""
    words, known = student.table.shape[0], teacher.table.shape[0]
    if words != known:
        raise InputError(f"the teacher knows {known} words, the student {words}: {_SAME_WORDS}")
    if _vocabulary(teacher) != _vocabulary(student) and None not in (teacher.tokenizer, student.tokenizer):
        raise InputError(f"teacher and student number their words differently: {_SAME_WORDS}")
    if transfer is None:
        return
    if len(teacher.blocks) != len(student.blocks):
        raise InputError(
            f"the teacher has {len(teacher.blocks)} layers, the student {len(student.blocks)}: "
            "layers are transferred one to one, so make the depths equal or use strategy=pd"
        )
    if teacher.width != student.width and transfer.maps == "none":
        raise InputError(
            f"the teacher's layers give {teacher.width} channels, the student's {student.width}: "
            "make the widths equal or learn maps between them with transfer.maps=linear"
        )
    if teacher.released_padding != student.released_padding:
        reads, remedy = ("teacher", "released") if teacher.released_padding else ("student", "masked")
        raise InputError(f"only the {reads} reads padding as text: give the student change.padding={remedy}")
    if transfer.attention and not shared_heads(teacher, student):
        (theirs, _), (ours, _) = _heads(teacher), _heads(student)
        raise InputError(
            f"the teacher has {theirs} heads, the student {ours}: "
            "attention is transferred head by head, so make them equal or switch that off with transfer.attention=0"
        )


def shared_heads(teacher: Model, student: Model) -> int:
    """How many attention heads, the first ones, have a counterpart; 0 when heads don't correspond.

    A mixer with convolution heads has fewer attention heads than heads: those that it has keep their numbers.
    """
    (theirs, attending), (ours, mine) = _heads(teacher), _heads(student)
    return min(attending, mine) if theirs == ours else 0


def copy_embeddings(
    teacher: Encoder, student: Encoder, *, norm: Literal["identity", "copy", "train"] = "identity"
) -> frozenset[str]:
    """Copy tables, projection and pre-training heads where they fit; name the embeddings that stage one has to train.

    Tables and projection are copied one by one where shapes agree, of the positions as many as the student has. A head
    is copied whole or not at all: the MLM head only together with the table it is tied to (its activation stays the
    student's, as released), the next-sentence head only if both read the same, pooled or raw [CLS] state.
    Deviation: the release gives the student, which has no pooler, the teacher's last layer all the same, though it was
    trained on another vector.

    The norm of the embeddings is copied where both have the same kind. A student without normalisation cannot have the
    teacher's: with "identity" its scale and shift stay what they are, 1 and 0, until stage two, and un-normalised
    embeddings pass, as released; with "copy" it takes the teacher's scale and shift, and still does not normalise;
    with "train" it starts as the identity and is trained from the first layer's stage on.
    """
    ours, theirs = (dict(model.embeddings.named_parameters()) for model in (student, teacher))
    alike = type(student.embeddings.get_submodule("norm")) is type(teacher.embeddings.get_submodule("norm"))
    if not alike and norm != "copy":
        theirs = {name: table for name, table in theirs.items() if not name.startswith("norm.")}
    left = {
        name for name, table in ours.items() if not _copied(theirs.get(name), table, rows=name == "position.weight")
    }
    if "word.weight" not in left:
        _copy_head(teacher, student, "mlm")
        if not alike and norm == "identity":
            left -= {"norm.weight", "norm.bias"}
    _copy_head(teacher, student, "nsp")
    return frozenset(f"embeddings.{name}" for name in left)


@torch.no_grad()
def _copied(source: Tensor | None, target: Tensor, *, rows: bool = False) -> bool:
    """Copy if the shapes agree, or the first ``rows`` of a longer table."""
    if source is not None and rows and source.shape[0] > target.shape[0]:
        source = source[: target.shape[0]]
    if source is None or source.shape != target.shape:
        return False
    target.copy_(source)
    return True


def _copy_head(teacher: Encoder, student: Encoder, kind: str) -> None:
    if kind not in teacher.heads or kind not in student.heads:
        return
    theirs, ours = teacher.heads[kind].state_dict(), student.heads[kind].state_dict()
    if {n: t.shape for n, t in theirs.items()} == {n: t.shape for n, t in ours.items()}:
        student.heads[kind].load_state_dict(theirs)


def _heads(model: Model) -> tuple[int, int]:
    """All heads of a model's mixers, and how many of them attend."""
    mixer: nn.Module = model.blocks[0].get_submodule("mixer")
    attending: int = mixer.n_heads  # type: ignore[assignment]
    return (model.config.n_heads if isinstance(mixer, MixedAttention | LocalAttention) else attending), attending


def _vocabulary(model: Model) -> dict[str, int] | None:
    return None if model.tokenizer is None else model.tokenizer.get_vocab()
