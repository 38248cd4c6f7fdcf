"""Filling caches ahead of time."""
