"""The gradients of the weights of the narrow feed-forward."""
