"""Makes the text that the bundled models are pre-trained on from public repositories."""
