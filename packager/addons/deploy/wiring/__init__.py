"""Services of `packager deploy`."""
