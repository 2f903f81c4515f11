"""Builders that turn documents into examples."""
