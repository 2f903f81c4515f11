"""Looking at what was learned: curves, suspicion, knowledge transfer and attention, and later kernels."""
