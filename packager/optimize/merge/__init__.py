"""A LoRA adapter folded into its base: sums computed while the base is read."""
