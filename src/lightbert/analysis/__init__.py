"""Plots and metrics of trained models: loss curves, replaced words, knowledge transfer, attention maps."""
