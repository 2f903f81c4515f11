"""Learning from a teacher, stage by stage: feature maps, attention, predictions (MobileBERT §3.5, §3.6)."""

from collections.abc import Callable, Mapping
from typing import Self

import torch
from torch import Tensor, nn

from lightbert.data.batches.batch import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.init import initialize
from lightbert.objectives.distill.distilled_prediction import DistilledPrediction
from lightbert.objectives.distill.layer_transfer import Compared, LayerTransfer, LearnedMap
from lightbert.objectives.distill.losses import moments
from lightbert.objectives.distill.pair import check_pair, shared_heads
from lightbert.objectives.distill.stages import Scales, Stage
from lightbert.objectives.distill.trace import Trace, trace
from lightbert.objectives.distill.transfer_settings import Transfer
from lightbert.objectives.masker import Masker
from lightbert.objectives.objective import Losses, Objective, ratio, stack
from lightbert.objectives.prediction import predict_pairs

_PREDICTION = ("mlm_loss", "predictions", "mlm_correct", "kd_loss", "nsp_loss", "pairs", "nsp_correct")


class Distillation(Objective):
    """A student learns what its stage says; in evaluation always everything, so that numbers compare between stages.

    transfer: how layers are compared; None = they are not, and only predictions are learned from the teacher.
    alpha: the share of the text's own words in what is predicted; the teacher has the rest (Eq. 4).
    dropout: whether the student drops out anything while it has a teacher. The release does not, in either stage.
    seed: what the learned maps between the widths are drawn from.

    The teacher is evaluated without gradient, only as deep as the stage needs it. It moves with the objective, but is
    none of its modules: it is neither trained nor saved, and all of its parameters are frozen here.
    The loop freezes by the stage's ``scales``; this module decides what is computed.
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
        # Registered as a module it would be trained, saved and counted.
        object.__setattr__(self, "teacher", teacher)
        self._refuse()
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
        self.stage = self._whole = Stage("all", 0, self.layers, predict=True, scales=Scales(self.layers, predict=True))
        self.train()

    def _refuse(self) -> None:
        """Say clearly what could not be learned from."""
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha = {self.alpha} is no share of the loss: give a number between 0 and 1")
        if "mlm" not in self.student.heads:
            raise InputError("the student has no MLM head: add one with add_head(student, 'mlm')")
        if self.teacher is not None:
            check_pair(self.teacher, self.student, self.transfer)
            if self.alpha < 1 and "mlm" not in self.teacher.heads:
                raise InputError(
                    "the teacher has no MLM head, so nothing to predict: use alpha = 1, or another teacher"
                )
        elif self.transfer is not None:
            raise InputError("there is nobody to transfer from: name a teacher")
        if self.transfer is not None and not (self.transfer.compares_maps or self.transfer.attention):
            raise InputError("all weights of the transfer are 0, so no layer would learn anything: use strategy=pd")

    def set_stage(self, stage: Stage) -> None:
        """Compute from now on what a stage needs."""
        if stage.layers and not self.layers:
            raise InputError(f"the stage '{stage.name}' transfers layers, but nothing says how: give a transfer")
        self.stage = stage

    def train(self, mode: bool = True) -> Self:
        """Switch training on or off; the student's dropout stays off unless it is wanted."""
        super().train(mode)
        self.student.train(mode and (self.teacher is None or self.dropout))
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Take the teacher along to another device."""
        if self.teacher is not None:
            self.teacher._apply(fn, recurse)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def prepare(self, batch: Batch) -> Batch:
        """Mask the batch: teacher and student read the same."""
        masked: Batch = self.masker(batch)
        return masked

    def counts(self, batch: Batch) -> Tensor:
        """The predictions, the pairs, and the tokens that are compared."""
        assert batch.weights is not None
        pairs = batch.rows.new_full((), batch.rows.shape[0])
        return stack(batch.weights.sum(), pairs, self._keep(batch).sum()).float()

    def _keep(self, batch: Batch) -> Tensor:
        """Which tokens are compared: [B, T]."""
        real = batch.mask != 0
        released = self.transfer is not None and self.transfer.padding == "released"
        return torch.ones_like(real) if released else real

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Mean distance per compared token over all layers, plus mean loss per prediction and per pair."""
        stage = self.stage if self.training else self._whole
        attention = stage.layers if self.transfer is not None and self.transfer.attention else range(0)
        taught = self._teach(batch, stage, attention)
        depth = self.depth if stage.predict else 0
        learned = trace(self.student, batch, stage.layers, attention=attention, depth=depth)
        zero = counts.new_zeros(())
        total, predicted = zero, [zero] * len(_PREDICTION)
        if stage.predict:
            total, predicted = self._predict(taught, learned, batch, counts)
        keep = self._keep(batch)
        compared = self._compare(taught, learned, keep)
        if self.transfer is not None:
            for each in compared.values():
                total = total + (each.fmt + self.transfer.attention * each.at) / counts[2].clamp(min=1) / self.depth
        nothing, tokens = Compared(zero, zero), keep.sum()
        layers = [compared.get(layer, nothing) for layer in self.layers]
        seen = [tokens if layer in compared else zero for layer in self.layers]
        return Losses(total, stack(*predicted, *(each.fmt for each in layers), *(each.at for each in layers), *seen))

    @torch.no_grad()
    def _teach(self, batch: Batch, stage: Stage, attention: range) -> Trace | None:
        """Run the teacher as deep as its states are needed, if they are."""
        layers, predicts = stage.layers, stage.predict and self.alpha < 1
        if self.teacher is None or not (layers or predicts):
            return None
        if layers and self.transfer is not None and self.transfer.compares_all_layers:
            layers = range(self.depth + 1)
        depth = len(self.teacher.blocks) if predicts else 0
        return trace(self.teacher, batch, layers, attention=attention, depth=depth)

    def _predict(
        self, taught: Trace | None, learned: Trace, batch: Batch, counts: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Eq. 4, and its part of the tally."""
        assert batch.weights is not None
        last = None if taught is None or self.alpha == 1 else taught.last
        words = self.predict(self.student, learned.last, self.teacher, last, batch)
        pairs = predict_pairs(self.student, batch, learned.last)
        total = words.loss.mixed(self.alpha) / counts[0].clamp(min=1) + pairs.loss / counts[1].clamp(min=1)
        return total, [words.loss.mlm, batch.weights.sum(), words.correct, words.loss.kd, *pairs]

    def _compare(self, taught: Trace | None, learned: Trace, keep: Tensor) -> dict[int, Compared]:
        """Compare every layer that the student's trace has."""
        if taught is None or self.compare is None or not learned.states:
            return {}
        everything = None
        if self.compare.transfer.compares_all_layers:
            everything = moments(torch.stack([*taught.states.values()]))  # [L + 1, B, T]
        result: dict[int, Compared] = {}
        for layer, state in learned.states.items():
            mapped = state if self.maps is None else self.maps[layer - 1](state)
            scores = (taught.scores[layer], learned.scores[layer]) if layer in learned.scores else None
            result[layer] = self.compare(taught.states[layer], mapped, keep, scores, everything)
        return result

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Losses and accuracies of what was computed; "fmt" and "at" are averages over the layers that were compared.

        "loss" is what is minimised: transfer is divided by all layers, also when a stage compares one, as released.
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
            each = {f"{what}_{layer}": ratio(tally, f"{what}_{layer}", f"tokens_{layer}") for layer in compared}
            loss += weight * sum(each.values()) / self.depth
            result |= {what: sum(each.values()) / len(each), **each}
        return {"loss": loss, **result}

    def _weights(self) -> dict[str, float]:
        """What the transferred kinds weigh in the loss; feature maps have their weights already."""
        if self.transfer is None:
            return {}
        weights = {"fmt": float(self.transfer.compares_maps), "at": self.transfer.attention}
        return {what: weight for what, weight in weights.items() if weight}

    def models(self) -> dict[str, Model]:
        """The student."""
        return {"final": self.student}
