"""LAMB: Adam with a trust ratio per parameter (You et al. 2020)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Lamb(torch.optim.Optimizer):
    """LAMB as in MobileBERT's code: no bias correction; the trust ratio ‖w‖/‖u‖ is 1 if either norm is 0.

    Groups with ``scaled=False`` take a plain Adam step. Setting ``found_inf`` to a tensor skips the step
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
