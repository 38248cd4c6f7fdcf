"""Services of the server's commands."""
