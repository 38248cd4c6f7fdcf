#!/bin/sh
# `vllm serve` of 0.27.1, with what people get wrong
MODEL=Qwen/Qwen3-8B
vllm serve "$MODEL" \
  -tp 2 \
  --max_model_len 32k \
  --enable-prefix-caching=true \
  --gpu-memory-utilisation 0.95 \
  --speculative-config.method ngram \
  --speculative-config.num_speculative_tokens 3 \
  -cc.mode nonsense \
  --max-num-seqs 64 --max-num-seqs 128 \
  --enable-auto-tool-choice \
  --api-key sk-0123456789abcdefghijklmnop
