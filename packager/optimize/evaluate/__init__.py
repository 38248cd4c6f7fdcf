"""Evaluation of a quantized model against its source: step, comparison, report."""
