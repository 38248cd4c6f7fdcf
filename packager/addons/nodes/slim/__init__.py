"""Slim bases: an image's layers without the files that its engine does not need."""
