"""S3 and servers that speak its protocol: clients, listings, failures, uploads in parts."""
