"""Techniques and their steps: quantize, compile, drafts, evaluate; tools, cache, keys.

Others import `cache`, `compile`, `drafts`, `evaluate`, `keys`, `quantize`, `steps`.
"""
