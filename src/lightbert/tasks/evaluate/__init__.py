"""Evaluation of a model on a task."""
