"""Compiler of TensorRT-LLM engines, which TensorRT-LLM has given up after 1.2."""
