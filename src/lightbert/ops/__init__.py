"""Functions on tensors. Each op has a plain PyTorch reference, which is also the CPU and the export path."""
