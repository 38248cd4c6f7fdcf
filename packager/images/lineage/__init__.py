"""Lineage: from data to a step, an artifact, an image, an endpoint and a benchmark."""
