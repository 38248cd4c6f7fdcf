"""Tensors while they are read: where their bytes are, and blocks of them on all cores."""
