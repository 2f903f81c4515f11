"""Training objectives: modules that compute losses from a batch."""
