"""vLLM: images whose server is vLLM itself; its options serve every family with vLLM inside."""
