"""The forward pass of the convolution heads: the kernel layer and the dynamic convolution as one kernel."""
