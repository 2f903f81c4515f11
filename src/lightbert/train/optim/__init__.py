"""Optimizers without host synchronisation: the rate is a tensor, and a non-finite step is skipped on the device."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, distributed, nn

from lightbert.train.distributed import full_tensor
from lightbert.train.optim.flat import FlatAdamW
from lightbert.train.optim.lamb import Lamb
from lightbert.train.optim.muon import Muon
from lightbert.train.settings import OptimizerSettings

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
        found = {}
        for optimizer in (self.main, self.muon):
            for p, state in optimizer.state.items() if optimizer is not None else ():
                found.update({f"{self.names[p]}/{what}": value for what, value in state.items()})  # type: ignore[index]
        return found
