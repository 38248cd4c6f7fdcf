"""Byte ranges of models that stay where they are: hubs and S3."""
