"""Quantization without a tool: sizes and layout by headers, bytes computed while they are read."""
