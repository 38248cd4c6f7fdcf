"""SGLang, on GPUs."""
