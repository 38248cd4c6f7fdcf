"""Managed environments of tools."""
