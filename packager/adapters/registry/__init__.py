"""An OCI distribution client and a small read-only registry server."""
