"""MTP heads in a model's checkpoint and in speculators' layer: the same numbers, other names.

Checkpoints store each expert, or all in one tensor; the layer has them in one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from packager_worker import BadInput, Rejected
from safetensors import safe_open
from safetensors.torch import save_file
from speculators.convert.mtp.converter import MTP_EXACT_REMAP, MTP_PREFIX_REMAP
from speculators.models.mtp import MTPDraftModel
from speculators.models.mtp.model_definitions import mtp_model_classes

PREFIX = "mtp."
EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight", re.ASCII)


def load_head(model: Path, config: Any, proposals: int) -> Any:
    """Make speculators' head with the model's numbers, whole or not at all."""
    if config.model_type not in mtp_model_classes:
        raise Rejected(
            f"speculators trains no MTP head of {config.model_type!r}: its types are "
            f"{', '.join(sorted(mtp_model_classes))}",
            "train an EAGLE-3 head",
        )
    stored = {name for file in _files(model) for name in _names(file) if name.startswith(PREFIX)}
    if not stored:
        raise Rejected(
            "the checkpoint has no MTP head to train: no tensor is called `mtp.…`",
            "name the checkpoint that was published with it, or train an EAGLE-3 head",
        )
    head = MTPDraftModel.from_training_args(
        config, num_speculative_steps=proposals, verifier_name_or_path=str(model)
    )
    needed = {name for name, _ in head.named_parameters() if name.startswith("mtp_layers.")}
    found = {_joined_name(name) for name in stored}
    if needed != found:
        one = min(needed ^ found)
        raise BadInput(f"the MTP head is not one of its configuration: {one!r} is in one of both")
    return head.float()


def write_head(head: Any, model: Path, output: Path) -> dict[str, torch.Tensor]:
    """Write the head in the names, shapes and types of the model; give the layer's as written."""
    own = head.state_dict()
    written: dict[str, torch.Tensor] = {}
    for file in _files(model):
        with safe_open(file, framework="pt") as opened:
            for name in _names(file):
                if not name.startswith(PREFIX):
                    continue
                before = opened.get_tensor(name)
                value = _part(own, name).to("cpu", before.dtype).contiguous()
                if value.shape != before.shape:
                    raise BadInput(f"{name!r} of the MTP head has another shape than its layer")
                written[name] = value
    save_file(written, output / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config |= {"speculators_model_type": "mtp"}
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (output / "config.json").write_text(text, encoding="utf-8")
    return _joined(written, own)


def _part(own: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """Give the layer's numbers of a stored tensor."""
    layer = _layer_name(name)
    if expert := EXPERT.fullmatch(layer):
        prefix, number, which = expert[1], int(expert[2]), expert[3]
        if which == "down_proj":
            return own[f"{prefix}.down_proj"][number]
        both = own[f"{prefix}.gate_up_proj"][number]
        half = both.shape[0] // 2
        return both[:half] if which == "gate_proj" else both[half:]
    return own[layer]


def _joined(
    written: dict[str, torch.Tensor], own: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Give the layer's tensors with the numbers that were written."""
    found = {name: own[name].clone() for name in map(_joined_name, written)}
    for name, value in written.items():
        _part(found, name).copy_(value)
    return found


def _layer_name(name: str) -> str:
    if name in MTP_EXACT_REMAP:
        return str(MTP_EXACT_REMAP[name])
    for theirs, ours in MTP_PREFIX_REMAP:
        if name.startswith(theirs):
            return str(ours + name.removeprefix(theirs))
    return name


def _joined_name(name: str) -> str:
    layer = _layer_name(name)
    if expert := EXPERT.fullmatch(layer):
        return f"{expert[1]}.{'down_proj' if expert[3] == 'down_proj' else 'gate_up_proj'}"
    return layer


def _files(model: Path) -> list[Path]:
    return sorted(model.glob("*.safetensors"))


def _names(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as opened:
        return list(opened.keys())
