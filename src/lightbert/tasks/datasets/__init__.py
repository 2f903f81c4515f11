"""Datasets: GLUE, SQuAD and custom files as tasks."""
