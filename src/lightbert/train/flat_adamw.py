"""AdamW on flat buffers: a few large kernels update all parameters, instead of many kernels with few blocks."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# The parameters start at multiples of 512 bytes, as in memory of their own: kernels rely on aligned addresses.
_ALIGNMENT = 128
# PyTorch's kernel takes 36 tensors at a time, and one of its blocks computes up to 65,536 numbers, four per thread at
# once. A short range is split, because one block would take as long for it as all blocks for a range of 8 million.
_TENSORS_PER_LAUNCH, _BLOCK, _LEAST = 36, 65_536, 2048


class _Place(NamedTuple):
    """The number of a parameter, and its range in the buffers with the padding."""

    number: int
    start: int
    end: int


class FlatAdamW(torch.optim.Optimizer):
    """PyTorch's fused AdamW on ranges of flat buffers; the parameters and their state become views of them.

    Parameters next to each other are updated as one range if they have the same group and number of steps; a parameter
    without a gradient is left out and stays unchanged. Setting ``found_inf`` to 1 skips a step on the device;
    gradients are divided by ``grad_scale``.

    parameters: in fp32; the order is that of the buffers, so parameters of a group should be next to each other.
    step: the number of steps to start from.
    """

    def __init__(
        self, parameters: list[nn.Parameter], lr: Tensor, betas: tuple[float, float], eps: float, step: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        device = lr.device
        self.found_inf = torch.zeros((), device=device)
        self.grad_scale: Tensor | None = None
        self.layout = 0
        """Changes if the ranges change for good: a step that was captured before has to be captured again."""
        sizes = [_round_up(p.numel()) for p in parameters]
        ends = list(accumulate(sizes))
        self._places = {
            p: _Place(index, end - size, end)
            for index, (p, size, end) in enumerate(zip(parameters, sizes, ends, strict=True))
        }
        # The padding is zero in all buffers, and a step leaves it zero.
        self._weights, self._gradients, self._means, self._squares = (
            torch.zeros(ends[-1], device=device) for _ in range(4)
        )
        self._steps = torch.full((len(parameters),), step, device=device)
        self._histories: list[int] | None = None
        for p, place in self._places.items():
            weights = self._view(self._weights, p)
            weights.copy_(p.data)
            p.data = weights
            moments = {"exp_avg": self._view(self._means, p), "exp_avg_sq": self._view(self._squares, p)}
            self.state[p] = {"step": self._steps[place.number], **moments}

    def _view(self, buffer: Tensor, p: nn.Parameter) -> Tensor:
        start = self._places[p].start
        return buffer[start : start + p.numel()].view(p.shape)

    def reset(self) -> None:
        """Forget gradients and ranges, after the groups have changed or the state has been loaded."""
        self._gradients.zero_()
        self._histories = None

    def gradient_place(self, p: nn.Parameter) -> Tensor | None:
        """Return the place of a parameter's gradient in the buffer, unless a gradient is there already."""
        return self._view(self._gradients, p) if p in self._places and p.grad is None else None

    @torch.no_grad()
    def gather_gradients(self) -> Tensor:
        """Copy the gradients that aren't in the buffer into it, and return the buffer; missing ones are zero."""
        trained = [p for group in self.param_groups for p in group["params"]]
        base, size = self._gradients.data_ptr(), self._gradients.element_size()
        outside = [
            p for p in trained if p.grad is not None and p.grad.data_ptr() != base + size * self._places[p].start
        ]
        if outside:
            torch._foreach_copy_([self._view(self._gradients, p) for p in outside], [p.grad for p in outside])
        if missing := [self._view(self._gradients, p) for p in trained if p.grad is None]:
            torch._foreach_zero_(missing)
        return self._gradients

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one step with the gathered gradients."""
        histories = self._split_histories()
        runs = [self._runs(group["params"], histories) for group in self.param_groups]
        applied = 1 - self.found_inf
        # PyTorch's function for many tensors would read the number that is added on the host.
        for run in (run for group in runs for run in group):
            self._steps[run[0].number : run[-1].number + 1].add_(applied)
        for group, members in zip(self.param_groups, runs, strict=True):
            if members:
                self._update(group, members)

    def _split_histories(self) -> list[int]:
        """Number the parameters so that those with the same number have taken the same steps.

        How many steps were skipped is known on the device only, but not that two parameters took part in the same ones.
        """
        if self._histories is None:
            self._histories = _numbered(self._steps.tolist())
        split = _numbered(
            (history, p.requires_grad and p.grad is None)
            for p, history in zip(self._places, self._histories, strict=True)
        )
        if max(split) > max(self._histories):
            self._histories = split
            self.layout += 1
        return self._histories

    def _runs(self, parameters: list[nn.Parameter], histories: list[int]) -> list[list[_Place]]:
        """Join the places of neighbours with the same number of steps, without parameters that have no gradient."""
        runs: list[list[_Place]] = []
        for place in (self._places[p] for p in parameters if p.grad is not None):
            last = runs[-1][-1] if runs else None
            if last is not None and last.end == place.start and histories[last.number] == histories[place.number]:
                runs[-1].append(place)
            else:
                runs.append([place])
        return runs

    def _update(self, group: dict[str, Any], runs: list[list[_Place]]) -> None:
        """Update the ranges of a group by one call."""
        # The number of the first parameter, start and end of each piece.
        pieces: list[tuple[int, int, int]] = []
        for run in runs:
            first, end = run[0], run[-1].end
            length = _piece(end - first.start)
            pieces += [(first.number, at, min(at + length, end)) for at in range(first.start, end, length)]

        def split(buffer: Tensor) -> list[Tensor]:
            return [buffer[start:end] for _, start, end in pieces]

        torch._fused_adamw_(
            split(self._weights),
            split(self._gradients),
            split(self._means),
            split(self._squares),
            [],
            [self._steps[number] for number, _, _ in pieces],
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
        )


def _round_up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _piece(size: int) -> int:
    """The length of the pieces of a range: one launch of a block per piece, or the whole if it has enough blocks."""
    length = max(_round_up(-(-size // _TENSORS_PER_LAUNCH)), _LEAST)
    return length if length < _BLOCK else size


def _numbered(values: Iterable[object]) -> list[int]:
    """Replace values by numbers from 0, in the order of their first occurrence."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]
