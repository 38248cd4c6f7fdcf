"""Strict rendering of container files: every value serialised, every file read back."""
