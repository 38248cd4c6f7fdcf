"""Speculative decoding: parsing of `--draft`, checks of a draft against its model by headers."""
