"""EROFS file systems over tar layers that stay as they are."""
