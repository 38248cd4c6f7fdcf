"""How far greedy answers are from what plain weights would have answered: in the tool environment.

    PYTHON plain_answers.py QUESTIONS > GAPS

A question is a JSON line with `place`, a checkpoint without quantization; `prompts` and `answers`,
lists of tokens; and `rounded`, what the engine rounds activations to before each product of a
quantized matrix, a token at a time: "float", "int" or nothing, with `modules`, whose inputs they
are.  The line comes back with two numbers for each token that was answered:

`gaps`: how far its logit is below the largest one, as a part of the logits' standard deviation; 0
is the same choice.  The weights are computed with in 32 bits, and activations rounded as above.

`spreads`: how much that distance changes, root mean square, when each module's output is off by as
much as bfloat16 may be.  Where a norm follows a sum that nearly cancels, or a router has two
equals, that is much, and the token says nothing about the weights.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1")

import torch
import transformers

READINGS = 8
BFLOAT16 = 2.0**-9  # the largest relative error of rounding to 8 bits of fraction
FP8_MOST, INT8_MOST = 448.0, 127.0
LEAST_SCALE = 1 / (FP8_MOST * 512)  # vLLM: layers/quantization/input_quant_fp8.py


def main() -> int:
    transformers.logging.set_verbosity_error()
    for line in Path(sys.argv[1]).read_text().splitlines():
        question = json.loads(line)
        sys.stdout.write(json.dumps({**question, **told_of(question)}) + "\n")
    return 0


def told_of(question: dict[str, Any]) -> dict[str, list[float]]:
    kind = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(question["place"], dtype=torch.float32).eval()
    if question["rounded"]:
        round_inputs(model, question["modules"], ROUNDINGS[question["rounded"]])
    noise = Noise(model)
    read = [gaps_of(model, question["prompts"], question["answers"])]
    for seed in range(READINGS):
        noise.start(seed)
        read.append(gaps_of(model, question["prompts"], question["answers"]))
    gaps, *others = torch.tensor(read)
    spreads = (torch.stack(others) - gaps).pow(2).mean(dim=0).sqrt()
    return {"gaps": gaps.tolist(), "spreads": spreads.tolist()}


def gaps_of(model: Any, prompts: list[list[int]], answers: list[list[int]]) -> list[float]:
    """Return the distance of each answered token, given those before it."""
    gaps = []
    for prompt, answer in zip(prompts, answers, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
        for at, token in enumerate(answer, start=len(prompt) - 1):
            row = logits[at]
            gaps.append(float((row.max() - row[token]) / row.std()))
    return gaps


def to_fp8(values: torch.Tensor) -> torch.Tensor:
    """Round each token to E4M3, its largest value to the largest one there is."""
    scale = (values.abs().amax(dim=-1, keepdim=True) / FP8_MOST).clamp(min=LEAST_SCALE)
    return (values / scale).clamp(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn).float() * scale


def to_int8(values: torch.Tensor) -> torch.Tensor:
    """Round each token to whole numbers up to 127."""
    scale = values.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / INT8_MOST
    return (values / scale).round() * scale


ROUNDINGS = {"float": to_fp8, "int": to_int8}


def round_inputs(
    model: Any, modules: Iterable[str], rounding: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Have the inputs of these modules rounded; raise `LookupError` where one is not there."""
    own = dict(model.named_modules())
    for name in modules:
        own[name].register_forward_pre_hook(lambda _, given: (rounding(given[0]),))


class Noise:
    """Errors as large as those of bfloat16, on what each innermost module returns."""

    def __init__(self, model: Any) -> None:
        self._random: torch.Generator | None = None
        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(self._disturb)

    def start(self, seed: int) -> None:
        self._random = torch.Generator().manual_seed(seed)

    def _disturb(self, _: Any, __: Any, returned: Any) -> Any:
        if self._random is None or not isinstance(returned, torch.Tensor):
            return returned
        errors = torch.rand(returned.shape, generator=self._random) * 2 - 1
        return returned * (1 + errors * BFLOAT16)


if __name__ == "__main__":
    sys.exit(main())
