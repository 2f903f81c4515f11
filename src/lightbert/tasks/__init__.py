"""Tasks: data, metrics, fine-tuning, evaluation, prediction."""
