"""Linear models of texts in terms of their Gram matrix [N, N], so that words, vectors and both are fitted alike.

A linear model with an L2 penalty is a sum over its training texts, Σ coefficient · k(text, ·). Cross-validation selects
rows and columns of one Gram matrix, and the sum of two matrices is the model of both kinds of features.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

_ITERATIONS = 50
_COST_OF_SQUARES = 10.0
_SCALE = 4.0
"""Of the scores of least squares in a log loss."""
_JITTER = 1e-3
"""Added to the diagonal, which is about 1: the matrix of vectors narrower than N is singular."""


class Linear(NamedTuple):
    """The scores of a text are its row of the Gram matrix [N] times `coefficients` [N, C], plus `bias` [C]."""

    coefficients: Tensor
    bias: Tensor

    def scores(self, gram: Tensor) -> Tensor:
        """[M, N] to [M, C]."""
        return gram @ self.coefficients + self.bias


def fit(gram: Tensor, targets: NDArray[np.generic], outputs: int, cost: float) -> Linear:
    """Fit a linear model by L-BFGS: one against the rest with the squared hinge loss, or numbers by least squares.

    targets: classes [N], 0/1 labels [N, outputs], or numbers [N].
    cost: the weight of the loss of a text, relative to the penalty.
    """
    wanted = _wanted(targets, outputs)
    # In the coordinates of the factor, the penalty is the squared norm of the weights.
    factor = torch.linalg.cholesky(gram + _JITTER * torch.eye(len(gram)))  # [N, N]
    hinge = not _are_numbers(targets)
    bias = wanted.mean(0)
    start = torch.linalg.solve(gram + torch.eye(len(gram)) / (2 * cost), wanted - bias)
    weight = (factor.T @ start).T.contiguous()
    optimizer = torch.optim.LBFGS(
        [weight.requires_grad_(), bias.requires_grad_()], max_iter=_ITERATIONS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = F.linear(factor, weight, bias)
        errors = (1 - wanted * scores).clamp(min=0) if hinge else wanted - scores
        value = (cost * errors.square().sum() + weight.square().sum() / 2) / len(gram)
        value.backward()
        total: Tensor = value
        return total

    optimizer.step(loss)
    coefficients = torch.linalg.solve_triangular(factor.T, weight.detach().T, upper=True)
    return Linear(coefficients, bias.detach())


def held_out_losses(
    gram: Tensor, targets: NDArray[np.generic], outputs: int, parts: Sequence[NDArray[np.int64]]
) -> Tensor:
    """The loss of each text in the parts [M], by least squares without the part: in closed form, for all parts at once.

    The loss is the log loss of classes, and the squared error of labels and numbers.
    """
    wanted = _wanted(targets, outputs).double()
    wanted = wanted - (mean := wanted.mean(0))
    # The constant is the bias.
    inverse = torch.linalg.inv(gram.double() + 1 + torch.eye(len(gram)) / (2 * _COST_OF_SQUARES))
    coefficients = inverse @ wanted
    errors = [torch.linalg.solve(inverse[np.ix_(part, part)], coefficients[part]) for part in parts]
    rows = np.concatenate(parts)
    if targets.ndim > 1 or _are_numbers(targets):
        return torch.cat(errors).square().sum(1)
    scores = wanted[rows] + mean - torch.cat(errors)
    return F.cross_entropy(_SCALE * scores, torch.from_numpy(targets[rows].astype(np.int64)), reduction="none")


def _are_numbers(targets: NDArray[np.generic]) -> bool:
    return targets.ndim == 1 and targets.dtype.kind == "f"


def _wanted(targets: NDArray[np.generic], outputs: int) -> Tensor:
    """The scores of a perfect model [N, outputs]: 1 and -1, or the numbers."""
    known = torch.from_numpy(np.ascontiguousarray(targets))
    if _are_numbers(targets):
        return known.float().unsqueeze(1)
    return 2 * (F.one_hot(known, outputs) if known.dim() == 1 else known).float() - 1


def folds(groups: Sequence[object], order: Sequence[object], count: int, seed: int) -> list[NDArray[np.int64]]:
    """Split rows into parts whose labels have the same shares.

    groups: rows with the same value stay together, such as copies of a text.
    order: labels or numbers; rows whose values are near each other are in different parts.
    """
    random = np.random.default_rng(seed)
    keys = [(value, random.random()) for value in order]
    part_of: dict[object, int] = {}
    parts: list[list[int]] = [[] for _ in range(count)]
    for row in sorted(range(len(keys)), key=lambda row: keys[row]):
        part = part_of.setdefault(groups[row], len(part_of) % count)
        parts[part].append(row)
    return [np.sort(np.array(part, np.int64)) for part in parts if part]
