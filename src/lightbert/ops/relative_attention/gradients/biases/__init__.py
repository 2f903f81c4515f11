"""The gradients of biases, for the kernels."""
