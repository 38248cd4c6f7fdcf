"""Measuring what a draft does for a server."""
