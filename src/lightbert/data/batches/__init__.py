"""Batches of tensors from examples."""
