"""What a model says about texts."""
