"""Optimizers without host synchronisation: the rate is a tensor, and a non-finite step is skipped on the device."""

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn

from lightbert.train.distributed import full_tensor
from lightbert.train.flat_adamw import FlatAdamW
from lightbert.train.settings import OptimizerSettings


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020) as in MobileBERT's code, without bias correction.

    The trust ratio ‖w‖/‖u‖ is 1 if either norm is 0.
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


_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPS = 1e-7
# Scales an orthogonal update to the root mean square of a typical AdamW update (Liu et al. 2025).
_RMS_OF_ADAMW = 0.2


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): Nesterov momentum, orthogonalised in bf16 by Newton-Schulz iterations, weight decay.

    The update is that of PyTorch's Muon, which reads the learning rate on the host, so that a CUDA graph can't capture
    it, and handles one matrix at a time. This one keeps the rate on the device and stacks the matrices of one shape.

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


# At this step Adam's bias corrections, 1 - β^step, are exactly 1: starting from it disables them.
_STEP_WITHOUT_BIAS = 1e6


def is_decayed(name: str) -> bool:
    """Whether a parameter has weight decay: everything except biases and norms, as in the released code."""
    parts = name.split(".")
    return parts[-1] != "bias" and not any(part.endswith("norm") for part in parts[:-1])


def suits_flat_buffers(parameters: list[nn.Parameter]) -> bool:
    """Whether AdamW uses flat buffers: on a GPU, in fp32, by a single process; others get gradients in buckets."""
    alone = not (distributed.is_available() and distributed.is_initialized())
    return alone and all(p.is_cuda and p.dtype is torch.float32 for p in parameters)


class Optimizers:
    """The optimizers of a run behind one interface: rates, clipping, skipping, and state by parameter name.

    Every parameter that requires gradients at the start keeps its state, also while it is frozen.
    flat: whether ``kind="adamw"`` uses flat buffers, of which the parameters become views; None: where they are faster.
    """

    def __init__(self, model: nn.Module, settings: OptimizerSettings, *, flat: bool | None = None) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.names = {p: name for name, p in named.items()}
        self.clip = settings.clip
        self.decay = settings.weight_decay
        start = torch.zeros((), device=next(iter(named.values())).device)
        in_blocks = {n for n, p in named.items() if settings.kind == "muon" and p.dim() == 2 and "blocks." in n}
        betas = (settings.beta1, settings.beta2)
        rest = [p for n, p in named.items() if n not in in_blocks]
        first_step = 0.0 if settings.bias_correction else _STEP_WITHOUT_BIAS
        self.main: torch.optim.Optimizer
        self.flat: FlatAdamW | None = None
        if settings.kind == "lamb":
            self.main = Lamb(rest, start, betas, settings.eps)
        elif settings.kind == "adamw" and (suits_flat_buffers(rest) if flat is None else flat):
            rest.sort(key=lambda p: is_decayed(self.names[p]), reverse=True)
            self.main = self.flat = FlatAdamW(rest, start, betas, settings.eps, first_step)
        else:
            graphs = start.is_cuda
            self.main = torch.optim.AdamW(rest, lr=start, betas=betas, eps=settings.eps, fused=True, capturable=graphs)
            self._init_state(self.main, first_step)
        self.muon: Muon | None = None
        if in_blocks:
            self.muon = Muon([named[name] for name in sorted(in_blocks)], start, self.decay)
        self.scale(lambda name: 1.0)

    @staticmethod
    def _init_state(optimizer: torch.optim.Optimizer, step: float) -> None:
        """Create the state before the first step, so that a checkpoint can be loaded into it."""
        for group in optimizer.param_groups:
            for p in group["params"]:
                optimizer.state[p] = {
                    "step": torch.full((), step, dtype=torch.float32, device=p.device),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }

    def scale(self, scales: Callable[[str], float]) -> None:
        """Set each parameter's learning rate multiplier; a multiplier of 0 freezes it."""
        self._rates: list[tuple[Tensor, float]] = []
        for p, name in self.names.items():
            p.requires_grad_(scales(name) != 0)
            p.grad = None
        for optimizer in (self.main, self.muon):
            if optimizer is not None:
                self._group(optimizer, scales)
        if self.flat is not None:
            self.flat.reset()

    def _group(self, optimizer: torch.optim.Optimizer, scales: Callable[[str], float]) -> None:
        """Build the parameter groups: one per multiplier and weight decay."""
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for p in (p for p in self.names if p in optimizer.state and p.requires_grad):
            name = self.names[p]
            # Muon trains matrices only, all with weight decay.
            groups.setdefault((scales(name), optimizer is self.muon or is_decayed(name)), []).append(p)
        optimizer.param_groups.clear()
        for (scale, decayed), members in groups.items():
            rate = torch.zeros_like(optimizer.defaults["lr"])
            self._rates.append((rate, scale))
            # LAMB doesn't scale parameters without weight decay, as in the released code.
            decay = {"weight_decay": self.decay if decayed else 0.0, "scaled": decayed}
            optimizer.param_groups.append({**optimizer.defaults, **decay, "params": members, "lr": rate})

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step, before the multipliers."""
        for tensor, scale in self._rates:
            # A larger number would be a traceback; training with this one diverges, which has a sentence.
            tensor.fill_(min(rate * scale, torch.finfo(tensor.dtype).max))

    def step(self) -> tuple[Tensor, Tensor]:
        """Clip and apply the gradients if they are finite.

        Returns their norm before clipping, and whether it is finite, without host synchronisation.
        """
        scale: Tensor | None = None
        if self.flat is not None:
            norm = torch.linalg.vector_norm(self.flat.gather_gradients())
            if self.clip:
                # As PyTorch clips; the update divides the gradients, which saves a pass over them.
                scale = ((norm + 1e-6) / self.clip).clamp(min=1.0)
        else:
            gradients = [p.grad for p in self.names if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
            if self.clip:
                torch.nn.utils.clip_grads_with_norm_(self.names, self.clip, norm, foreach=True)
            norm = full_tensor(norm)
        # Not `isfinite`, which is four kernels; a comparison with NaN is false.
        finite = norm < math.inf
        self.main.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self.main.grad_scale = scale  # type: ignore[attr-defined]
        self.main.step()
        if self.muon is not None:
            self.muon.found_inf = (~finite).float()
            self.muon.step()
        return norm, finite

    @property
    def layout(self) -> int:
        """A number that changes if a captured step has to be captured again."""
        return 0 if self.flat is None else self.flat.layout

    def gradient_place(self, p: nn.Parameter) -> Tensor | None:
        """Return the place of a parameter's gradient in the flat buffer, if there is one and it isn't in use."""
        return None if self.flat is None else self.flat.gradient_place(p)

    def zero_grad(self) -> None:
        """Set the gradients to None."""
        for p in self.names:
            p.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer state; each tensor is named ``<parameter>/<state>``."""
        tensors = {}
        for optimizer in (self.main, self.muon):
            for p, state in optimizer.state.items() if optimizer is not None else ():
                tensors.update({f"{self.names[p]}/{what}": value for what, value in state.items()})  # type: ignore[index]
        return tensors


_BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")


def layer_rate(name: str, depth: int, decay: float, depths: Literal["released", "corrected"] = "released") -> float:
    """Return a parameter's learning rate multiplier: 1 for heads, decayed once per layer below them (ELECTRA).

    depth: the number of blocks of the model.

    Deviation: "released" counts an extra layer above the top block, where the code once had a pooler (electra#51): the
    top block has decay² instead of decay, and so on down to the embeddings. "corrected" doesn't count it.
    """
    top = depth + (2 if depths == "released" else 1)
    block = _BLOCK.search(name)
    if block:
        return decay ** (top - int(block[1]) - 1)
    return decay**top if ".embeddings." in f".{name}" else 1.0
