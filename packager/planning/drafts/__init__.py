"""What proposes tokens: reading the request, and holding a draft against its model from headers."""
