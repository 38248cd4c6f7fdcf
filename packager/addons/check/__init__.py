"""Configurations of others: what their engine refuses, ignores or misreads.

Others import `plain`, `properties`.
"""
