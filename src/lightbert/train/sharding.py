"""FSDP2: weights, gradients and optimizer state shared out between processes, for models that are too large for one.

A sharded tensor is a DTensor: it has the shape of the whole and holds a part. Files hold whole tensors, so that a
checkpoint does not depend on the number of processes. PyTorch's modules for this take a second to import, which only
those wait for who shard.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective
from lightbert.train.distributed import World

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def shard(objective: Objective, world: World) -> None:
    """Share the parameters out, in place: a block's are gathered when it runs, all others for the whole step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for model in objective.modules():
        if isinstance(model, Encoder):
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def is_sharded(module: nn.Module) -> "TypeGuard[FSDPModule]":
    """Whether the parameters of a module are shared out."""
    return hasattr(module, "unshard")


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor; all processes must ask."""
    return tensor.full_tensor() if _is_part(tensor) else tensor


def gathered(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Whole tensors in the host's memory for the first process, nothing for the others."""
    found = {}
    for name, tensor in tensors.items():
        complete = whole(tensor)
        if world.is_main:
            found[name] = complete.cpu()
    return found


@torch.no_grad()
def fill(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor that every process has into one that may be shared out."""
    if _is_part(target):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements, src_data_rank=None)
    target.copy_(value)


def _is_part(tensor: Tensor) -> "TypeGuard[DTensor]":
    return hasattr(tensor, "full_tensor")
