"""Counts tokens of pictures by transformers' own processors; run in the environment of a tool.

Reads `{"sizes": [[width, height], …]}` from stdin; writes, for each family, the documents of the
model and how many tokens the processor counts for each size.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from typing import Any

QWEN = {"shortest_edge": 3136, "longest_edge": 12_845_056}
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]

# family → name of processor and image processor, configuration of the model, settings of the
# image processor, and what the processor itself is given
FAMILIES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "qwen2_vl": ("Qwen2VL", "Qwen2VL", {}, {"size": QWEN}, {}),
    "qwen2_5_vl": (
        *("Qwen2_5_VL", "Qwen2VL", {}),
        *({"size": {"shortest_edge": 200_704, "longest_edge": 1_003_520}}, {}),
    ),
    "qwen3_vl": (
        *("Qwen3VL", "Qwen2VL", {}),
        *({"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}, "patch_size": 16}, {}),
    ),
    "llava": (
        *("Llava", "CLIP", {"vision_config": {"image_size": 336, "patch_size": 14}}),
        {"crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}},
        {"patch_size": 14, "vision_feature_select_strategy": "default",
         "num_additional_image_tokens": 1},
    ),
    "llava_next": (
        *("LlavaNext", "LlavaNext", {"vision_config": {"image_size": 336, "patch_size": 14}}),
        {"size": {"shortest_edge": 336}, "image_grid_pinpoints": PINPOINTS},
        {"patch_size": 14, "vision_feature_select_strategy": "default",
         "num_additional_image_tokens": 1},
    ),
    "internvl": (
        *("InternVL", "GotOcr2", {}),
        {"size": {"height": 448, "width": 448}, "crop_to_patches": True, "max_patches": 12},
        {"image_seq_length": 256},
    ),
    "gemma3": ("Gemma3", "Gemma3", {"mm_tokens_per_image": 256}, {}, {"image_seq_length": 256}),
    "pixtral": (
        *("Pixtral", "Pixtral", {}),
        {"size": {"longest_edge": 1024}, "patch_size": {"height": 16, "width": 16}},
        {"patch_size": 16, "spatial_merge_size": 1},
    ),
    "mistral3": (
        *("Pixtral", "Pixtral", {"spatial_merge_size": 2}),
        {"size": {"longest_edge": 1540}, "patch_size": {"height": 14, "width": 14}},
        {"patch_size": 14, "spatial_merge_size": 2},
    ),
    "idefics3": (
        *("Idefics3", "Idefics3", {}),
        {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}},
        {"image_seq_len": 169},
    ),
    "smolvlm": (
        *("Idefics3", "SmolVLM", {}),
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
        {"image_seq_len": 64},
    ),
}  # fmt: skip


FOLDERS = {
    "Qwen2VL": "qwen2_vl", "Qwen2_5_VL": "qwen2_5_vl", "Qwen3VL": "qwen3_vl", "Llava": "llava",
    "CLIP": "clip", "LlavaNext": "llava_next", "InternVL": "internvl", "GotOcr2": "got_ocr2",
    "Gemma3": "gemma3", "Pixtral": "pixtral", "Idefics3": "idefics3", "SmolVLM": "smolvlm",
}  # fmt: skip


class Words:
    """As much of a tokenizer as counting asks for: "\\n\\n" is one token."""

    def __call__(self, text: str, **more: object) -> dict[str, list[int]]:
        return {"input_ids": [0]}


def class_of(folder: str, module: str, name: str) -> Any:
    """Return a class by its module: without torchvision the package hides some.

    Pixtral's imports it beside the arithmetic, and calls nothing of it to count.
    """
    if name == "PixtralProcessor":
        for module_name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
            stand_in = sys.modules.setdefault(module_name, types.ModuleType(module_name))
            stand_in.__dict__.setdefault("functional", None)
    return getattr(importlib.import_module(f"transformers.models.{folder}.{module}"), name)


def main() -> int:
    import transformers  # type: ignore[import-not-found]

    sizes = [(height, width) for width, height in json.load(sys.stdin)["sizes"]]
    found = {}
    for family, (outer, inner, config, settings, given) in FAMILIES.items():
        place = f"image_processing_pil_{FOLDERS[inner]}"
        image_class = class_of(FOLDERS[inner], place, f"{inner}ImageProcessorPil")
        outer_class = class_of(FOLDERS[outer], f"processing_{FOLDERS[outer]}", f"{outer}Processor")
        processor = object.__new__(outer_class)
        processor.image_processor = image_class(**settings)
        processor.tokenizer = Words()
        for name, value in given.items():
            setattr(processor, name, value)
        counted = processor._get_num_multimodal_tokens(image_sizes=[list(one) for one in sizes])
        documents = {**settings, **given}
        if "patch_size" in settings and "patch_size" in given:
            documents["patch_size"] = settings["patch_size"]
        found[family] = {
            "config": {"model_type": family, **config},
            "settings": documents,
            "tokens": list(counted["num_image_tokens"]),
        }
    json.dump({"transformers": transformers.__version__, "families": found}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
