"""Checks of what this machine can do for packager."""
