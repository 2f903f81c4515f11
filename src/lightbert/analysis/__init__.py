"""Looking at what was learned: curves, and later attention, kernels and transfer."""
