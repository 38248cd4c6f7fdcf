"""Ahead-of-time compilation: checks, key documents and steps of each compiler."""
