"""Outputs that are directories of files instead of images: `dir:DIR`, `s3://BUCKET/PREFIX`."""
