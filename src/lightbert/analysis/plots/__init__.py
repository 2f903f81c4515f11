"""Plots of attention maps, head statistics and kernels, at most as wide as a page."""
