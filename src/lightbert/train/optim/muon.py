"""Muon: momentum with orthogonalised updates (Jordan et al. 2024), batched by shape.

PyTorch's own Muon reads the learning rate on the host, which a CUDA graph can't capture, and handles one matrix at
a time. This one keeps the rate on the device, stacks the matrices of one shape, and supports ``found_inf`` like
PyTorch's fused optimizers. The update is the same.
"""

import warnings
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPS = 1e-7
# Scales an orthogonal update to the root mean square of a typical AdamW update (Liu et al. 2025).
_RMS_OF_ADAMW = 0.2


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised in bf16 by five Newton-Schulz iterations, with decoupled weight decay.

    Setting ``found_inf`` to a tensor skips the step on the device when that tensor is 1.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], lr: Tensor, weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.found_inf: Tensor | None = None
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {"momentum_buffer": torch.zeros_like(p)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one step."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for matrices in _by_shape(group["params"]):
                buffers = [self.state[p]["momentum_buffer"] for p in matrices]
                weights, before = torch.stack(matrices), torch.stack(buffers)  # [N, rows, columns]
                gradients = torch.stack([p.grad for p in matrices if p.grad is not None])
                averages = before.lerp(gradients, 1 - momentum)
                update = orthogonalize(gradients.lerp(averages, momentum))
                scale = _RMS_OF_ADAMW * max(update.shape[1:]) ** 0.5
                changed = weights * (1 - rate * group["weight_decay"]) - (rate * scale) * update
                self._assign(matrices, weights, changed)
                self._assign(buffers, before, averages)

    def _assign(self, targets: list[Tensor], present: Tensor, values: Tensor) -> None:
        """Copy the values into the targets, or their present ones if the step isn't finite: a few kernels for all."""
        if self.found_inf is not None:
            values = torch.where(self.found_inf > 0, present, values)
        torch._foreach_copy_(targets, list(values.unbind()))


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return matrices [N, rows, columns] with all singular values close to 1."""
    a, b, c = _QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.transpose(1, 2) if tall else matrices).bfloat16()
    # The spectral norm is at most the Frobenius norm.
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_EPS)
    with warnings.catch_warnings():
        # On a CPU without bf16 instructions PyTorch prints a long warning about a slow fallback.
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        for _ in range(_ITERATIONS):
            gram = x @ x.transpose(1, 2)
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.transpose(1, 2) if tall else x).to(matrices.dtype)


def _by_shape(parameters: Iterable[nn.Parameter]) -> Iterator[list[Tensor]]:
    """Yield the parameters that have a gradient, grouped by shape."""
    shapes: dict[torch.Size, list[Tensor]] = {}
    for p in parameters:
        if p.grad is not None:
            shapes.setdefault(p.shape, []).append(p)
    yield from shapes.values()
