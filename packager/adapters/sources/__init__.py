"""Where models come from: local directories, hubs and S3."""
