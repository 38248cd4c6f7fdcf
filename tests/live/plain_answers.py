"""How far greedy answers are from what plain weights would have answered: in the tool environment.

    PYTHON plain_answers.py QUESTIONS > GAPS

A question is a JSON line with `place`, a checkpoint without quantization; `prompts` and `answers`,
lists of tokens; and `rounded`, what the engine rounds activations to before each product of a
quantized matrix, a token at a time: "float", "int" or nothing, with `modules`, whose inputs they
are.  `picture` is a file that the last prompt tells of.  The line comes back with two numbers for
each token that was answered:

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
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TQDM_DISABLE="1")

import torch
import transformers

READINGS = 8
BFLOAT16 = 2.0**-9  # the largest relative error of rounding to 8 bits of fraction
FP8_MOST, INT8_MOST = 448.0, 127.0
PILLOW = {
    "CLIPImageProcessor": "clip",
    "Gemma3ImageProcessor": "gemma3",
    "PixtralImageProcessor": "pixtral",
    "Qwen2VLImageProcessor": "qwen2_vl",
}
LEAST_SCALE = 1 / (FP8_MOST * 512)  # vLLM: layers/quantization/input_quant_fp8.py


def main() -> int:
    transformers.logging.set_verbosity_error()
    for line in Path(sys.argv[1]).read_text().splitlines():
        question = json.loads(line)
        sys.stdout.write(json.dumps({**question, **told_of(question)}) + "\n")
    return 0


def told_of(question: dict[str, Any]) -> dict[str, list[float]]:
    picture = question.get("picture")
    kind = (
        transformers.AutoModelForImageTextToText if picture else transformers.AutoModelForCausalLM
    )
    model = kind.from_pretrained(question["place"], dtype=torch.float32).eval()
    if question["rounded"]:
        round_inputs(model, question["modules"], ROUNDINGS[question["rounded"]])
    noise = Noise(model)
    seen = pixels_of(question["place"], picture) if picture else {}
    read = [gaps_of(model, question["prompts"], question["answers"], seen)]
    for seed in range(READINGS):
        noise.start(seed)
        read.append(gaps_of(model, question["prompts"], question["answers"], seen))
    gaps, *others = torch.tensor(read)
    spreads = (torch.stack(others) - gaps).pow(2).mean(dim=0).sqrt()
    return {"gaps": gaps.tolist(), "spreads": spreads.tolist()}


def pixels_of(place: str, picture: str) -> dict[str, torch.Tensor]:
    """Prepare a picture by the library's classes that need Pillow alone, as the processor says."""
    from PIL import Image

    told = json.loads(Path(place, "processor_config.json").read_text())["image_processor"]
    kind = told.pop("image_processor_type")
    module = f"image_processing_pil_{PILLOW[kind]}"
    library = import_module(f"transformers.models.{PILLOW[kind]}.{module}")
    processor = getattr(library, f"{kind}Pil")(**told)
    return dict(processor(images=[Image.open(picture)], return_tensors="pt"))


def gaps_of(
    model: Any, prompts: list[list[int]], answers: list[list[int]], seen: dict[str, torch.Tensor]
) -> list[float]:
    """Return the distance of each answered token, given those before it."""
    gaps = []
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), 1):
        inputs = {"input_ids": torch.tensor([prompt + answer])}
        if number == len(prompts):
            inputs |= seen
            if "image_grid_thw" in seen:  # positions have three parts: which tokens are seen?
                kinds = inputs["input_ids"] == model.config.image_token_id
                inputs["mm_token_type_ids"] = kinds.int()
        with torch.no_grad():
            logits = model(**inputs).logits[0]
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
    """Have the inputs of these modules rounded; raise `LookupError` where one is not there.

    Checkpoints of models that see may name their text model otherwise than the library does: from
    the list of layers on they agree.
    """
    own = {_below_layers(name): module for name, module in model.named_modules()
           if "vision" not in name and "visual" not in name}  # fmt: skip
    for name in modules:
        own[_below_layers(name)].register_forward_pre_hook(lambda _, given: (rounding(given[0]),))


def _below_layers(name: str) -> str:
    return name.rpartition("layers.")[2]


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
