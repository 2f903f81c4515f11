"""What is minimised: modules that turn a batch into losses. The loop never learns what it trains."""
