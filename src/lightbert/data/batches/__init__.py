"""Examples to tensors."""
