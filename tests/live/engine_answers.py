"""Greedy answers of vLLM to prompts of token numbers, for many checkpoints in one process.

    PYTHON engine_answers.py < questions > answers

PYTHON has vLLM on its path.  A question is a JSON line with `place`, a checkpoint, and `prompts`,
lists of tokens; for a model that sees also `picture`, a file, and `seeing`, one more prompt, to
which it belongs.  The line comes back with `answers`, a list of tokens for each prompt, and with
`prompts` as the engine read them, pictures' tokens put in; or `refused` with the engine's words.

Where torchvision is on the path as well, it is one without kernels: its published build is for
another torch, and models that see use its Python alone.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib.util import find_spec
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind", TQDM_DISABLE="1",
    VLLM_LOGGING_LEVEL="INFO",
)  # fmt: skip
TOKENS = 8
LONGEST = 300
KERNELS_OF_TORCHVISION = ("nms", "qnms")  # that its import declares, and nothing here calls


def main() -> int:
    if find_spec("torchvision") is not None:
        _do_without_kernels()
    from vllm import LLM, SamplingParams

    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    for line in sys.stdin.read().splitlines():
        question = json.loads(line)
        try:
            engine = LLM(
                model=question["place"],
                max_model_len=128,
                enforce_eager=True,
                max_num_seqs=4,
                skip_tokenizer_init="picture" not in question,
                dtype="bfloat16",
            )
            told = engine.generate(_asked(question), greedy, use_tqdm=False)
            question["answers"] = [list(one.outputs[0].token_ids) for one in told]
            question["prompts"] = [list(one.prompt_token_ids) for one in told]
            del engine
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())
            question["refused"] = words[:LONGEST]
        gc.collect()
        print(json.dumps(question), file=sys.__stdout__, flush=True)
    os._exit(0)


def _asked(question: dict[str, Any]) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = [{"prompt_token_ids": one} for one in question["prompts"]]
    if "picture" in question:
        from PIL import Image

        seen = {"image": Image.open(question["picture"])}
        asked.append({"prompt_token_ids": question["seeing"], "multi_modal_data": seen})
    return asked


def _do_without_kernels() -> None:
    """Declare what torchvision's own library would; classes are looked at in this process then."""
    import torch

    for name in KERNELS_OF_TORCHVISION:
        takes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{name}", takes)
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda inspect: inspect()


if __name__ == "__main__":
    sys.exit(main())
