"""Bias, GELU and a linear layer with one output: a score for each token."""
