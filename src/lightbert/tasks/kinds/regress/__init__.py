"""Regression: one number per text."""
