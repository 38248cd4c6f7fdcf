"""Greedy answers of vLLM to prompts of token numbers, for many checkpoints in one process.

    PYTHON engine_answers.py CHECKPOINT... < prompts > answers

PYTHON has vLLM on its path.  One line of JSON for each checkpoint: `answers`, a list of tokens for
each prompt, and the `kernels` of its log, or `refused` with the engine's words.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import sys
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind", TQDM_DISABLE="1",
    VLLM_LOGGING_LEVEL="INFO",
)  # fmt: skip
TOKENS = 8
LONGEST = 300
KERNEL = re.compile(r"\b(\w+(?:LinearKernel|ScaledMM\w*))\b")


class Kernels(logging.Handler):
    """Names of kernels that the log tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.names.update(KERNEL.findall(record.getMessage()))


def main() -> int:
    prompts = json.load(sys.stdin)
    from vllm import LLM, SamplingParams

    kernels = Kernels()
    logging.getLogger("vllm").addHandler(kernels)
    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    for place in sys.argv[1:]:
        kernels.names.clear()
        found: dict[str, Any] = {"place": place}
        try:
            engine = LLM(model=place, max_model_len=128, enforce_eager=True, max_num_seqs=4,
                         skip_tokenizer_init=True, dtype="bfloat16")  # fmt: skip
            asked = [{"prompt_token_ids": prompt} for prompt in prompts]
            told = engine.generate(asked, greedy, use_tqdm=False)
            found["answers"] = [list(one.outputs[0].token_ids) for one in told]
            found["kernels"] = sorted(kernels.names)
            del engine
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())
            found["refused"] = words[:LONGEST]
        gc.collect()
        print(json.dumps(found), file=sys.__stdout__, flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
