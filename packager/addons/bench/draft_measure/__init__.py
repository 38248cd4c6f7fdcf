"""Speculation measured: a server with and without its draft under the same load."""
