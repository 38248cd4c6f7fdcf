"""Images of a Docker Engine."""
