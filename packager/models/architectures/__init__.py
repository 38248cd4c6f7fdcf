"""A model as config.json and its headers describe it: sizes, layers, states, experts, formats."""
