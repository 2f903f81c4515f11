"""Token classification: one tag per word."""
