"""Serving container families: each says what its engine refuses, and renders its configuration."""
