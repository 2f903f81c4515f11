"""The distillation objective: feature maps, attention and predictions, stage by stage (MobileBERT §3.5, §3.6)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.init import initialize
from lightbert.nn.record import Record
from lightbert.objectives.distill.losses import DistilledPrediction, LayerLosses, LayerTransfer, LearnedMap, moments
from lightbert.objectives.distill.pair import check_pair, shared_heads
from lightbert.objectives.distill.stages import Scales, Stage, Transfer
from lightbert.objectives.mlm import Masker, predict_pairs
from lightbert.objectives.objective import Losses, Objective, ratio, stack

_PREDICTION = ("mlm_loss", "predictions", "mlm_correct", "kd_loss", "nsp_loss", "pairs", "nsp_correct")


@dataclass
class Trace:
    """Recorded tensors of a forward pass; layers are numbered from 1, and layer 0 is the embeddings."""

    last: Tensor
    """The states after the last layer that ran: [B, T, D]."""
    states: dict[int, Tensor]
    """The states after each requested layer: [B, T, D]."""
    scores: dict[int, Tensor]
    """Attention scores before the softmax, masked keys at -inf: [B, H, T, T]."""


def trace(model: Encoder, batch: Batch, layers: range, *, attention: range = range(0), depth: int = 0) -> Trace:
    """Run the embeddings and the blocks up to the last of ``layers``, or up to ``depth`` if that is deeper.

    Records the states of ``layers`` and the scores of ``attention``; blocks without recorded scores use fused
    attention. At full depth ``last`` equals the model's output.
    """
    record = Record([], None, None, scores=[], states_of=layers, maps_of=attention)
    deepest = max(depth, layers.stop - 1, attention.stop - 1)
    last = model(batch.ids, batch.mask, batch.segments, record, depth=deepest)
    assert record.states is not None
    assert record.scores is not None
    states, scores = zip(layers, record.states, strict=True), zip(attention, record.scores, strict=True)
    return Trace(last, dict(states), dict(scores))


class Distillation(Objective):
    """Train a student with the losses of the current stage; evaluate it with all losses, comparable across stages.

    transfer: how layers are compared; None = distil predictions only.
    alpha: the weight of the MLM loss; the teacher's predictions have weight 1 - alpha (Eq. 4).
    dropout: whether the student uses dropout with a teacher. The released code doesn't, in any stage.
    seed: the seed of the learned maps between widths.

    The teacher runs without gradients, only up to the layer that the stage needs. It moves with the objective but isn't
    one of its submodules: it is frozen, and neither trained nor saved.
    The loop freezes the student's parameters by the stage's ``scales``; this module only computes the losses.
    """

    teacher: Model | None

    def __init__(
        self,
        student: Model,
        masker: Masker,
        teacher: Model | None = None,
        *,
        transfer: Transfer | None = None,
        alpha: float = 0.5,
        dropout: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.student, self.masker = student, masker
        self.transfer, self.alpha, self.dropout = transfer, alpha, dropout
        self.depth = len(student.blocks)
        # As a submodule it would be trained, saved and counted.
        object.__setattr__(self, "teacher", teacher)
        self._validate()
        if teacher is None:
            self.alpha = 1.0
        self.predict = DistilledPrediction()
        self.compare: LayerTransfer | None = None
        self.maps: nn.ModuleList | None = None
        if teacher is not None:
            teacher.eval().requires_grad_(False)
        if teacher is not None and transfer is not None:
            self.compare = LayerTransfer(transfer, shared_heads(teacher, student))
            if transfer.maps == "linear":
                self.maps = nn.ModuleList(LearnedMap(student.width, teacher.width) for _ in student.blocks)
                initialize(self.maps, seed, prefix="maps.")
        self.layers = range(1, self.depth + 1) if self.compare is not None else range(0)
        self.tallies = _PREDICTION + tuple(f"{what}_{n}" for what in ("fmt", "at", "tokens") for n in self.layers)
        self.stage = self._all_losses = Stage(
            "all", 0, self.layers, predict=True, scales=Scales(self.layers, predict=True)
        )
        self.train()

    def _validate(self) -> None:
        """Check that the arguments are valid together."""
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha must be in [0, 1], got {self.alpha}")
        if "mlm" not in self.student.heads:
            raise InputError("the student has no 'mlm' head; add it with add_head(student, 'mlm')")
        if self.teacher is not None:
            check_pair(self.teacher, self.student, self.transfer)
            if self.alpha < 1 and "mlm" not in self.teacher.heads:
                raise InputError("alpha < 1 requires a teacher with an 'mlm' head; use alpha=1 or another teacher")
        elif self.transfer is not None:
            raise InputError("transfer requires a teacher; add teacher=PATH")
        if self.transfer is not None and not (self.transfer.compares_maps or self.transfer.attention):
            raise InputError(
                "at least one weight of the transfer must be > 0; to distil predictions only, use strategy=pd"
            )

    def set_stage(self, stage: Stage) -> None:
        """Select the losses of a stage."""
        if stage.layers and not self.layers:
            raise InputError(f"stage '{stage.name}' transfers layers and requires transfer=, got None")
        self.stage = stage

    def train(self, mode: bool = True) -> Self:
        """Set training mode; with a teacher the student's dropout stays off unless ``dropout`` is set."""
        super().train(mode)
        self.student.train(mode and (self.teacher is None or self.dropout))
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the teacher together with the objective."""
        if self.teacher is not None:
            self.teacher._apply(fn, recurse)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def prepare(self, batch: Batch) -> Batch:
        """Mask the batch; teacher and student read the same masked ids."""
        masked: Batch = self.masker(batch)
        return masked

    def counts(self, batch: Batch) -> Tensor:
        """Count the predictions, the pairs, and the compared tokens."""
        assert batch.weights is not None
        pairs = batch.rows.new_full((), batch.rows.shape[0])
        return stack(batch.weights.sum(), pairs, self._keep(batch).sum()).float()

    def _keep(self, batch: Batch) -> Tensor:
        """Return which tokens are compared: [B, T]."""
        real = batch.mask != 0
        released = self.transfer is not None and self.transfer.padding == "released"
        return torch.ones_like(real) if released else real

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the mean transfer loss per token and layer, plus the mean losses per prediction and per pair."""
        stage = self.stage if self.training else self._all_losses
        attention = stage.layers if self.transfer is not None and self.transfer.attention else range(0)
        teacher_trace = self._run_teacher(batch, stage, attention)
        depth = self.depth if stage.predict else 0
        student_trace = trace(self.student, batch, stage.layers, attention=attention, depth=depth)
        zero = counts.new_zeros(())
        total, predicted = zero, [zero] * len(_PREDICTION)
        if stage.predict:
            total, predicted = self._predict(teacher_trace, student_trace, batch, counts)
        keep = self._keep(batch)
        compared = self._compare(teacher_trace, student_trace, keep)
        if self.transfer is not None:
            for losses in compared.values():
                total = total + (losses.fmt + self.transfer.attention * losses.at) / counts[2].clamp(min=1) / self.depth
        nothing, tokens = LayerLosses(zero, zero), keep.sum()
        layers = [compared.get(layer, nothing) for layer in self.layers]
        seen = [tokens if layer in compared else zero for layer in self.layers]
        fmt, at = zip(*layers, strict=True) if layers else ((), ())
        return Losses(total, stack(*predicted, *fmt, *at, *seen))

    @torch.no_grad()
    def _run_teacher(self, batch: Batch, stage: Stage, attention: range) -> Trace | None:
        """Run the teacher up to the last layer that the stage needs; None if it needs none."""
        layers, predicts = stage.layers, stage.predict and self.alpha < 1
        if self.teacher is None or not (layers or predicts):
            return None
        if layers and self.transfer is not None and self.transfer.compares_all_layers:
            layers = range(self.depth + 1)
        depth = len(self.teacher.blocks) if predicts else 0
        return trace(self.teacher, batch, layers, attention=attention, depth=depth)

    def _predict(
        self, teacher_trace: Trace | None, student_trace: Trace, batch: Batch, counts: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute Eq. 4 and its tallies."""
        assert batch.weights is not None
        last = None if teacher_trace is None or self.alpha == 1 else teacher_trace.last
        words = self.predict(self.student, student_trace.last, self.teacher, last, batch)
        pairs = predict_pairs(self.student, batch, student_trace.last)
        total = words.loss.mixed(self.alpha) / counts[0].clamp(min=1) + pairs.loss / counts[1].clamp(min=1)
        return total, [words.loss.mlm, batch.weights.sum(), words.correct, words.loss.kd, *pairs]

    def _compare(self, teacher_trace: Trace | None, student_trace: Trace, keep: Tensor) -> dict[int, LayerLosses]:
        """Compute the transfer losses of every layer in the student's trace."""
        if teacher_trace is None or self.compare is None or not student_trace.states:
            return {}
        everything = None
        if self.compare.transfer.compares_all_layers:
            everything = moments(torch.stack([*teacher_trace.states.values()]))  # [L + 1, B, T]
        result: dict[int, LayerLosses] = {}
        for layer, state in student_trace.states.items():
            mapped = state if self.maps is None else self.maps[layer - 1](state)
            scores = (
                (teacher_trace.scores[layer], student_trace.scores[layer]) if layer in student_trace.scores else None
            )
            result[layer] = self.compare(teacher_trace.states[layer], mapped, keep, scores, everything)
        return result

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return the losses and accuracies that were computed; "fmt" and "at" are averages over the compared layers.

        "loss" is the minimised loss: the transfer is divided by the number of all layers, also in a stage that compares
        one layer, as in the released code.
        """
        mlm, kd = ratio(tally, "mlm_loss", "predictions"), ratio(tally, "kd_loss", "predictions")
        loss = self.alpha * mlm + (1 - self.alpha) * kd + ratio(tally, "nsp_loss", "pairs")
        result: dict[str, float] = {}
        if tally["predictions"]:
            result |= {"mlm_loss": mlm, "mlm_accuracy": ratio(tally, "mlm_correct", "predictions")}
            result |= {"kd_loss": kd} if self.alpha < 1 else {}
        if tally["pairs"]:
            result["nsp_loss"] = ratio(tally, "nsp_loss", "pairs")
            result["nsp_accuracy"] = ratio(tally, "nsp_correct", "pairs")
        compared = [layer for layer in self.layers if tally[f"tokens_{layer}"]]
        for what, weight in self._weights().items() if compared else ():
            values = {f"{what}_{layer}": ratio(tally, f"{what}_{layer}", f"tokens_{layer}") for layer in compared}
            loss += weight * sum(values.values()) / self.depth
            result |= {what: sum(values.values()) / len(values), **values}
        return {"loss": loss, **result}

    def _weights(self) -> dict[str, float]:
        """Return the weights of the transfer losses; feature maps are already weighted."""
        if self.transfer is None:
            return {}
        weights = {"fmt": float(self.transfer.compares_maps), "at": self.transfer.attention}
        return {what: weight for what, weight in weights.items() if weight}

    def models(self) -> dict[str, Model]:
        """Return the student."""
        return {"final": self.student}
