"""A second CUDA stream for a part of an objective whose gradients nothing else waits for.

PyTorch runs the backward pass of an operation on the stream of its forward pass. So the gradients of what ran on the
side stream are computed at the same time as those of the rest. The host starts the same kernels in the same order, and
the terms of each sum of gradients have the same order: the results are the same bits.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import graph


class SideStream:
    """Run a part of a forward pass on a stream of its own; capturing both streams as one CUDA graph is possible.

    Tensors from outside that the part reads must live until the end of the step. Tensors that leave it must be passed
    to `hand_over`: otherwise their memory could be used again while the main stream still reads it.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        # PyTorch warns about gradients that are accumulated on another stream; older versions don't.
        if hasattr(graph, "set_warn_on_accumulate_grad_stream_mismatch"):
            graph.set_warn_on_accumulate_grad_stream_mismatch(False)

    @contextmanager
    def running(self, shared: Iterable[Tensor]) -> Iterator[None]:
        """Run the body on the side stream, after all work of the current stream, which then waits for it.

        shared: the parameters that the rest uses, too. Their gradients are added on the current stream: the side stream
        would have to wait for those of the rest before it could continue.
        """
        main = torch.cuda.current_stream(self._stream.device)
        # The node that adds gradients belongs to the stream on which it is created, and lives while it is used.
        nodes = [graph.get_gradient_edge(parameter).node for parameter in shared if parameter.requires_grad]
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            yield
        main.wait_stream(self._stream)
        del nodes

    def hand_over(self, *tensors: Tensor) -> None:
        """Keep the memory of tensors of the side stream until the current stream has read them."""
        for tensor in tensors:
            tensor.record_stream(torch.cuda.current_stream(self._stream.device))
