"""Stores of entries and blobs."""
