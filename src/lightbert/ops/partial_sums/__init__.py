"""The second stage of sums over all tokens, for kernels."""
