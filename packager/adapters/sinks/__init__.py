"""Where images go: layout, registry, Docker Engine, or several at once."""
