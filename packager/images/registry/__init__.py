"""Images in registries: our own client of the distribution specification."""
