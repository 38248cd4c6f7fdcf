"""Images in OCI layouts."""
