"""Techniques and their steps: quantize, merge, compile, drafts, evaluate; tools, cache, keys.

Others import `cache`, `compile`, `drafts`, `evaluate`, `keys`, `merge`, `quantize`, `steps`.
"""
