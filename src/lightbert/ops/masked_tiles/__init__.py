"""Loads and stores of tiles that may extend beyond a tensor, for kernels."""
