"""Images on nodes: mounts, caches of layers, slim bases."""
