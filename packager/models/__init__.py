"""Models: where they are, what is read of them, what is refused."""
