"""Configurations that packager did not write: read with line numbers, held against engines."""
