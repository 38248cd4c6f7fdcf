"""Load on running servers: requests made, sent and timed, token by token."""
