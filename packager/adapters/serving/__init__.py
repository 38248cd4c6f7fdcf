"""Serving containers and servers that run: starting, asking and reading them."""
