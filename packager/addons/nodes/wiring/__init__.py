"""Services of mounts, node caches and slim bases."""
