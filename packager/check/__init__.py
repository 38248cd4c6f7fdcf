"""Configurations that packager did not write: read with line numbers, checked for an engine."""
