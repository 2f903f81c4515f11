"""Benchmarks and tables of results. Run them in a clone of the repository, as `python -m benchmarks.NAME`."""
