"""Neuron: images for AWS Inferentia and Trainium."""
