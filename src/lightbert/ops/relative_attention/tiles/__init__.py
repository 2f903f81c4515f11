"""Tiles of scores, for the kernels."""
