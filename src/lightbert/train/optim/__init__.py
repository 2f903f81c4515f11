"""Optimizers that never wait for the host: the rate is a tensor, and a bad step is skipped on the device."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lightbert.train.optim.lamb import Lamb
from lightbert.train.optim.muon import Muon
from lightbert.train.optimizer_settings import OptimizerSettings
from lightbert.train.sharding import whole

# After so many steps Adam's bias corrections, 1 - β^steps, are exactly 1: this is how they are switched off.
_LONG_AGO = 1e6


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
        self.muon: Muon | None = None
        if in_blocks:
            self.muon = Muon([named[name] for name in sorted(in_blocks)], start, self.decay)
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
        if self.clip:
            torch.nn.utils.clip_grads_with_norm_(self.names, self.clip, norm, foreach=True)
        norm = whole(norm)
        finite = norm.isfinite()
        self.main.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self.main.grad_scale = None  # type: ignore[attr-defined]
        self.main.step()
        if self.muon is not None:
            self.muon.found_inf = (~finite).float()
            self.muon.step()
        return norm, finite

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
