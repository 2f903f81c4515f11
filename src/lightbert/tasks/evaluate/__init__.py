"""How good a model is at a task."""
