"""LMI, AWS Large Model Inference: DJL Serving around vLLM or TensorRT-LLM."""
