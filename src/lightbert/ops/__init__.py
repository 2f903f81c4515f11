"""Functions on tensors. Each op has a plain PyTorch reference, which is also used on CPUs and in exported graphs."""
