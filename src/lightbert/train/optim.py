"""Optimizers that never wait for the host: the rate is a tensor, and a bad step is skipped on the device."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

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
    """The optimizers of a run behind one door: rates, clipping, skipping, and state by parameter name.

    Every parameter that asks for gradients at the start has its state from then on, also one that rests for a while.
    """

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.names = {p: name for name, p in named.items()}
        self.clip = settings.clip
        self.decay = settings.weight_decay
        start = torch.zeros((), device=next(iter(named.values())).device)
        in_blocks = {n for n, p in named.items() if settings.kind == "muon" and p.dim() == 2 and "blocks." in n}
        betas = (settings.beta1, settings.beta2)
        rest = [p for n, p in named.items() if n not in in_blocks]
        self.main: torch.optim.Optimizer
        if settings.kind == "lamb":
            self.main = Lamb(rest, start, betas, settings.eps)
        else:
            graphs = start.is_cuda
            self.main = torch.optim.AdamW(rest, lr=start, betas=betas, eps=settings.eps, fused=True, capturable=graphs)
            self._start(self.main, 0.0 if settings.bias_correction else _LONG_AGO)
        self.muon: torch.optim.Optimizer | None = None
        if in_blocks:
            matrices = [named[name] for name in sorted(in_blocks)]
            self.muon = torch.optim.Muon(matrices, start, self.decay, adjust_lr_fn="match_rms_adamw")  # type: ignore[arg-type]
            for p in matrices:
                self.muon.state[p]["momentum_buffer"] = torch.zeros_like(p)
        self.scale(lambda name: 1.0)

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

    def scale(self, scales: Callable[[str], float]) -> None:
        """Give each parameter its own multiple of the rate; at 0 it asks for no gradient and nothing of it changes."""
        self._rates: list[tuple[Tensor, float]] = []
        for p, name in self.names.items():
            p.requires_grad_(scales(name) != 0)
            p.grad = None
        for optimizer in (self.main, self.muon):
            if optimizer is not None:
                self._group(optimizer, scales)

    def _group(self, optimizer: torch.optim.Optimizer, scales: Callable[[str], float]) -> None:
        """Put parameters of the same multiple and decay together: an optimizer takes its settings by groups."""
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for p in (p for p in self.names if p in optimizer.state and p.requires_grad):
            name = self.names[p]
            # Muon has matrices only, and decays them all.
            groups.setdefault((scales(name), optimizer is self.muon or is_decayed(name)), []).append(p)
        optimizer.param_groups.clear()
        for (scale, decayed), members in groups.items():
            rate = torch.zeros_like(optimizer.defaults["lr"])
            self._rates.append((rate, scale))
            # LAMB leaves out of its scaling what is left out of the decay, as released.
            decay = {"weight_decay": self.decay if decayed else 0.0, "scaled": decayed}
            optimizer.param_groups.append({**optimizer.defaults, **decay, "params": members, "lr": rate})

    def set_rate(self, rate: float) -> None:
        """Set the rate of the next step, before each parameter's own multiple."""
        for tensor, scale in self._rates:
            tensor.fill_(rate * scale)

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
        with warnings.catch_warnings():
            # Muon multiplies in bf16. A processor that cannot is slow at it, and PyTorch says so in thirty lines.
            warnings.filterwarnings("ignore", "mkldnn_matmul failed")
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


class Lamb(torch.optim.Optimizer):
    """LAMB: Adam steps scaled, matrix by matrix, to the size of the weights (You et al. 2020).

    As in MobileBERT's code: no bias correction; the trust ratio ‖w‖/‖u‖ is 1 if either norm is 0.

    Groups with ``scaled`` off take the plain Adam step. Setting ``found_inf`` to a tensor skips the step
    on the device when that tensor is 1, like PyTorch's fused optimizers.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: Tensor,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "scaled": True})
        self.found_inf: Tensor | None = None
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one step."""
        for group in self.param_groups:
            (beta1, beta2), decay = group["betas"], group["weight_decay"]
            for p in (p for p in group["params"] if p.grad is not None):
                mean, square = self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]
                new_mean = mean.lerp(p.grad, 1 - beta1)
                new_square = square.lerp(p.grad.square(), 1 - beta2)
                update = new_mean / (new_square.sqrt() + group["eps"]) + decay * p
                if group["scaled"]:
                    size, change = p.norm(), update.norm()
                    update = update * torch.where((size > 0) & (change > 0), size / change, 1.0)
                for target, value in ((p, p - group["lr"] * update), (mean, new_mean), (square, new_square)):
                    target.copy_(value if self.found_inf is None else torch.where(self.found_inf > 0, target, value))
