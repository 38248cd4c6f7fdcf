"""The best build of a model on an instance, found by measuring candidates."""
