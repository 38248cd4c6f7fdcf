"""Bundles: images with all that goes with them, as files for places without a network."""
