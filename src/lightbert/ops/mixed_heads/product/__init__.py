"""The backward pass of the kernel layer of wide heads: its input in memory, and PyTorch's matmuls."""
