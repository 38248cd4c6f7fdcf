"""Where models come from: local directories and hubs."""
