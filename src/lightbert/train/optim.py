"""Optimizers that never wait for the host: the rate is a tensor, and a bad step is skipped on the device."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightbert.train.lamb import Lamb
from lightbert.train.sharding import whole

# After so many steps Adam's bias corrections, 1 - β^steps, are exactly 1: this is how they are switched off.
_LONG_AGO = 1e6


@dataclass(frozen=True)
class OptimizerSettings:
    """``bias_correction`` off is ELECTRA's and ConvBERT's Adam; muon takes the blocks' matrices, AdamW the rest."""

    kind: Literal["adamw", "lamb", "muon"] = "adamw"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = False
    clip: float = 1.0


def is_decayed(name: str) -> bool:
    """Biases and norms are not decayed; tables, convolutions and everything else are, as in the releases."""
    parts = name.split(".")
    return parts[-1] != "bias" and not any(part.endswith("norm") for part in parts[:-1])


class Optimizers:
    """The optimizers of a run behind one door: rate, clipping, skipping, and state by parameter name."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.names = {p: name for name, p in named.items()}
        self.clip = settings.clip
        self.rate = torch.zeros((), device=next(iter(named.values())).device)
        in_blocks = {n for n, p in named.items() if settings.kind == "muon" and p.dim() == 2 and "blocks." in n}
        betas = (settings.beta1, settings.beta2)
        groups = _groups({n: p for n, p in named.items() if n not in in_blocks}, settings.weight_decay)
        self.main: torch.optim.Optimizer
        if settings.kind == "lamb":
            self.main = Lamb(groups, self.rate, betas, settings.eps)
        else:
            graphs = self.rate.is_cuda
            self.main = torch.optim.AdamW(
                groups, lr=self.rate, betas=betas, eps=settings.eps, fused=True, capturable=graphs
            )
            self._start(self.main, 0.0 if settings.bias_correction else _LONG_AGO)
        self.muon: torch.optim.Optimizer | None = None
        if in_blocks:
            matrices = [named[name] for name in sorted(in_blocks)]
            decay = settings.weight_decay
            self.muon = torch.optim.Muon(matrices, self.rate, decay, adjust_lr_fn="match_rms_adamw")  # type: ignore[arg-type]
            for p in matrices:
                self.muon.state[p]["momentum_buffer"] = torch.zeros_like(p)

    @staticmethod
    def _start(optimizer: torch.optim.Optimizer, step: float) -> None:
        """Make the state now rather than at the first step, so that it can be restored into."""
        for group in optimizer.param_groups:
            for p in group["params"]:
                optimizer.state[p] = {
                    "step": torch.full((), step, dtype=torch.float32, device=p.device),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }

    def step(self) -> tuple[Tensor, Tensor]:
        """Clip and apply the gradients if they are finite: their norm before clipping, and whether they were.

        Nothing here waits for the device.
        """
        gradients = [p.grad for p in self.names if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        torch.nn.utils.clip_grads_with_norm_(self.names, self.clip, norm, foreach=True)
        norm = whole(norm)
        finite = norm.isfinite()
        self.main.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self.main.grad_scale = None  # type: ignore[attr-defined]
        self.main.step()
        if self.muon is not None:
            self._step_muon(finite)
        return norm, finite

    def _step_muon(self, finite: Tensor) -> None:
        """PyTorch's Muon knows no ``found_inf``: keep what it changes, and put it back after a bad step."""
        assert self.muon is not None
        state = self.muon.state
        kept = [(target, target.clone()) for p in state for target in (p.data, state[p]["momentum_buffer"])]
        self.muon.step()
        for target, value in kept:
            target.copy_(torch.where(finite, target, value))

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.names:
            p.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """All state, each tensor named ``<parameter>/<what>``."""
        found = {}
        for optimizer in (self.main, self.muon):
            for p, state in optimizer.state.items() if optimizer is not None else ():
                found.update({f"{self.names[p]}/{what}": value for what, value in state.items()})  # type: ignore[index]
        return found


def _groups(named: dict[str, nn.Parameter], decay: float) -> list[dict[str, Any]]:
    # LAMB leaves out of its scaling what is left out of the decay, as released.
    groups = [
        {"params": [p for n, p in named.items() if is_decayed(n)], "weight_decay": decay, "scaled": True},
        {"params": [p for n, p in named.items() if not is_decayed(n)], "weight_decay": 0.0, "scaled": False},
    ]
    return [group for group in groups if group["params"]]
