"""One loop for every objective: optimizers, schedules, checkpoints, logs, signals, several processes."""
