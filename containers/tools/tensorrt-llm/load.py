"""Load an engine as the server will, and ask it once: python load.py DIRECTORY PROMPT_TOKENS

The last line on stdout is the answer's token ids. A cut-off engine, one of another GPU or
one of another TensorRT ends here with TensorRT's own words.
"""

from __future__ import annotations

import json
import sys


def load(directory: str, prompt_tokens: int) -> list[int]:
    """Ask for a few tokens without a tokenizer."""
    from tensorrt_llm import SamplingParams
    from tensorrt_llm._tensorrt_engine import LLM  # `tensorrt_llm.LLM` is PyTorch's since 1.0

    llm = LLM(model=directory, skip_tokenizer_init=True)
    prompt = list(range(1, prompt_tokens + 1))
    answer = llm.generate(prompt, SamplingParams(max_tokens=4, end_id=-1, pad_id=0))
    return [int(token) for token in answer.outputs[0].token_ids]


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1], int(sys.argv[2]))))
