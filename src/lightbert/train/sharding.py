"""FSDP2: weights, gradients and optimizer state sharded across processes, for models too large for one device.

A sharded tensor is a DTensor: it has the full shape and stores one shard. Files store full tensors, so that a
checkpoint doesn't depend on the number of processes. PyTorch's modules for sharding take a second to import, so they
are imported inside the functions that need them.
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
    """Shard the parameters in place: a block is gathered when it runs, everything else for the whole step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for model in objective.modules():
        if isinstance(model, Encoder):
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def is_sharded(module: nn.Module) -> "TypeGuard[FSDPModule]":
    """Whether the parameters of a module are sharded."""
    return hasattr(module, "unshard")


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor that may be sharded; every process must call this."""
    return tensor.full_tensor() if _is_sharded(tensor) else tensor


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process stores."""
    return tensor.to_local() if _is_sharded(tensor) else tensor


def gather(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Gather tensors in host memory on the main process; other processes get an empty dict."""
    found = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if world.is_main:
            found[name] = full.cpu()
    return found


@torch.no_grad()
def fill(target: Tensor, value: Tensor) -> None:
    """Copy a full tensor, present on every process, into one that may be sharded."""
    if _is_sharded(target):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements, src_data_rank=None)
    target.copy_(value)


def _is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    return hasattr(tensor, "full_tensor")
