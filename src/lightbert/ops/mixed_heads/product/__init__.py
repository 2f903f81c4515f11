"""The backward pass of the kernel layer of wide heads: a kernel, and a matmul that reads its input in memory."""
