"""Benchmarks: parameters, FLOPs and speed."""
