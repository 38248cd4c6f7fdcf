"""Greedy answers of vLLM to prompts of token numbers, for many checkpoints.

    PYTHON engine_answers.py < questions > answers

PYTHON has vLLM on its path.  A question is a JSON line with `place`, a checkpoint, and `prompts`,
lists of tokens; for a model that sees also `picture`, a file, and `seeing`, one more prompt, to
which it belongs.  The line comes back with `answers`, a list of tokens for each prompt, and with
`prompts` as the engine read them, pictures' tokens put in; or `refused` with the engine's words.

Each question has a process of its own, forked from one that has loaded vLLM and done nothing else:
an engine that fails leaves groups of processes behind, and the next one in its process fails, too.

`PACKAGER_TEST_TORCH_CPU` has lines of Python with other answers to what vLLM asks the processor
(`tests/support/hidden_flags.py`).

Where torchvision is on the path as well, it is one without kernels: its published build is for
another torch, and models that see use its Python alone.
"""

from __future__ import annotations

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
    import torch.cpu

    exec(os.environ.get("PACKAGER_TEST_TORCH_CPU", ""), vars(torch.cpu))
    import vllm.entrypoints.llm
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.cpu_worker  # noqa: F401

    for line in sys.stdin.read().splitlines():
        question = json.loads(line)
        answered = {**question, **_in_a_fork(question)}
        print(json.dumps(answered), file=sys.__stdout__, flush=True)
    os._exit(0)


def _in_a_fork(question: dict[str, Any]) -> dict[str, Any]:
    """Ask in a process of its own; return what it says, or how it ended where it says nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            json.dump(_answer(question), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    _, status = os.waitpid(pid, 0)
    answer: dict[str, Any] = json.loads(said) if said else {"refused": f"ended with {status}"}
    return answer


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
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
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return {"refused": words[:LONGEST]}
    return {
        "answers": [list(one.outputs[0].token_ids) for one in told],
        "prompts": [list(one.prompt_token_ids) for one in told],
    }


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
