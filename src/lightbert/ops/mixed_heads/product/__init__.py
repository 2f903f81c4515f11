"""The kernel layer of wide heads: its input in memory, and PyTorch's matmuls."""
