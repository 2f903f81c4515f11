"""What models are used for: tasks and their data, metrics, fine-tuning, evaluation, prediction."""
