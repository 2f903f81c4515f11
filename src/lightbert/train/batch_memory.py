"""The least memory of a batch, checked before training: assembling a batch that can't fit would take minutes."""

import os
from collections.abc import Iterable

import torch

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.train.distributed import World

# A token of a batch is at least an int64, and its states between blocks have at least two bytes per number.
_BYTES_OF_ID, _BYTES_OF_NUMBER = 8, 2


def check_batch_memory(tokens: int, models: Iterable[Model], accumulate: int, world: World) -> None:
    """Raise an error if the ids of a batch, or the states that its backward pass reads, exceed all memory there is.

    Both are lower bounds, so that no batch that fits is an error; others raise an error when memory runs out.
    tokens: those of a step, over all processes.
    """
    numbers = sum(model.config.width * model.config.depth for model in models)
    tokens //= world.size
    host = machine_memory()
    if host is not None and tokens * _BYTES_OF_ID > host:
        raise _error("this machine", tokens * _BYTES_OF_ID, host, "lower batch= or length=")
    states = tokens // accumulate * numbers * _BYTES_OF_NUMBER
    gpu = world.device.type == "cuda"
    there = torch.cuda.get_device_properties(world.device).total_memory if gpu else host
    if there is not None and states > there:
        where = "the GPU" if gpu else "this machine"
        raise _error(where, states, there, "lower batch= or length=, raise accumulate=, or choose a smaller model=")


def machine_memory() -> int | None:
    """Return the memory of this machine in bytes; None if the system doesn't tell."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in os.sysconf_names else None


def _error(where: str, least: int, there: int, remedy: str) -> InputError:
    return InputError(
        f"the memory of {where} is not sufficient: a step requires at least {least / 2**30:,.3g} GiB, there are "
        f"{there / 2**30:.3g} GiB in total; {remedy}"
    )
