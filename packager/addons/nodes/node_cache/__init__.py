"""Directories of ready file systems for nodes: one file for each layer, named by its diffID."""
