"""Base images that packager makes itself."""
