"""Quantized checkpoints: whether their headers agree with what they declare, and are complete."""
