"""Plug-in tables."""
