"""From a recipe to a fine-tuned model."""
