"""Schemas and examples of persisted documents, by version."""
