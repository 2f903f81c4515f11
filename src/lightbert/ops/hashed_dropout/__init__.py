"""Dropout as a function of a seed and a position, for kernels."""
