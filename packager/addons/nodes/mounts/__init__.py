"""Mounting images' layers where they lie, and taking the mounts away."""
