"""Where entries and blobs can be kept."""
