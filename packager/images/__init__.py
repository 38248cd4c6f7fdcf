"""OCI images: layers, manifests, views, comparison; each medium in a package of its own."""
