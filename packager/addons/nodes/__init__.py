"""What nodes of a cluster do with images: mounts, caches of layers, slim bases."""
