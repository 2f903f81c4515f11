"""What a model does with texts: attention maps, kernels, and statistics of its heads."""
