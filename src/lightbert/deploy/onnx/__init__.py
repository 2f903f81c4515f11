"""ONNX graphs of our models, written part by part (docs/adr/0004)."""
