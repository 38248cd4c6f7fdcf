"""Quantization: methods, checks and steps."""
