"""Prediction with a fine-tuned model."""
