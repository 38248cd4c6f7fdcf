"""The line: from a request to an image, and what belongs to it alone."""
