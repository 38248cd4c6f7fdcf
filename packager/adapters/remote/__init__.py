"""Reading bytes from where they are kept: hubs and S3, in order, resumed and proven."""
