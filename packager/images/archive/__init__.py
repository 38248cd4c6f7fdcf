"""Images in tar archives."""
