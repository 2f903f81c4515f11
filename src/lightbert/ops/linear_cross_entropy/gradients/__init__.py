"""The backward pass of the kernels."""
