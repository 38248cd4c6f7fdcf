"""A head to go on with, in the names of its authors' format, which are SpecForge's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import whole
from packager_worker import BadInput, Rejected
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

NAMES = {"layers.0.": "midlayer.", "transformer.": "midlayer.", "fusion_fc.": "fc."}
# What is the model's and not the head's, under its names in the two formats.
OF_THE_MODEL = ("embed_tokens.", "verifier_")
# What some heads compute besides, and those of SpecForge that are trained here do not.
OTHER = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


class GivenHead:
    """What its two files say."""

    def __init__(self, place: Path) -> None:
        try:
            self._config = json.loads((place / "config.json").read_text(encoding="utf-8"))
            self._tensors = _read(place)
        except (OSError, ValueError, SafetensorError) as error:
            raise BadInput(f"the head cannot be read: {error}") from error
        for name in OTHER:
            if self._config.get(name):
                raise Rejected(
                    f"the head has {name}, which SpecForge's are trained without here",
                    "go on with `--trainer speculators`",
                )

    @property
    def shape(self) -> Mapping[str, Any]:
        """Its numbers, under the names of a model's."""
        nested: Mapping[str, Any] = self._config.get("transformer_layer_config") or self._config
        return nested

    @property
    def aux_layers(self) -> list[int]:
        """The model's layers whose input it reads, if it says."""
        stated = self._config.get("eagle_aux_hidden_state_layer_ids") or []
        nested = self._config.get("eagle_config") or {}
        before = nested.get("eagle_aux_hidden_state_layer_ids") or []
        return stated or [layer + 1 for layer in before]

    @property
    def vocabulary(self) -> list[int] | None:
        """The model's tokens that it proposes; None: all."""
        offsets = self._tensors.get("d2t")
        if offsets is None:
            return None
        return (offsets.to(torch.int64) + torch.arange(len(offsets))).tolist()

    @property
    def draft_vocab_size(self) -> int:
        """How many tokens it proposes."""
        return int(self._tensors["lm_head.weight"].shape[0])

    def check(self, hidden_size: int, vocab_size: int) -> None:
        """Refuse a head that is not whole, or of another model."""
        for name, shape in self._shapes(hidden_size).items():
            found = self._tensors.get(name)
            if found is None:
                raise BadInput(f"the head lacks {name}: is it a whole EAGLE-3 head?")
            if list(found.shape) != shape:
                raise Rejected(
                    f"the head's {name} is {list(found.shape)}, which should be {shape} here",
                    "go on with a head that was trained for this model",
                )
        tokens = self.vocabulary
        if tokens is None and self.draft_vocab_size != vocab_size:
            raise Rejected(
                f"the head proposes {self.draft_vocab_size} tokens and does not say which "
                f"of the model's {vocab_size}"
            )
        if tokens is not None and len(tokens) != self.draft_vocab_size:
            raise BadInput(
                f"the head names {len(tokens)} tokens and proposes {self.draft_vocab_size}"
            )
        if tokens is not None and not all(0 <= token < vocab_size for token in tokens):
            raise Rejected(f"the head proposes tokens that the model's {vocab_size} are not")

    def _shapes(self, hidden_size: int) -> dict[str, list[int]]:
        """Give what SpecForge's heads consist of, in the numbers that the head states."""
        shape = self.shape
        try:
            heads, inner = int(shape["num_attention_heads"]), int(shape["intermediate_size"])
            each = int(shape.get("head_dim") or shape["hidden_size"] // heads)
            shared = int(shape.get("num_key_value_heads") or heads)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise BadInput(f"the head's config.json cannot be used: {error}") from error
        tokens = len(self._tensors.get("lm_head.weight", ()))
        layer = {
            "self_attn.q_proj": [heads * each, 2 * hidden_size],
            "self_attn.k_proj": [shared * each, 2 * hidden_size],
            "self_attn.v_proj": [shared * each, 2 * hidden_size],
            "self_attn.o_proj": [hidden_size, heads * each],
            "mlp.gate_proj": [inner, hidden_size],
            "mlp.up_proj": [inner, hidden_size],
            "mlp.down_proj": [hidden_size, inner],
            "hidden_norm": [hidden_size],
            "input_layernorm": [hidden_size],
            "post_attention_layernorm": [hidden_size],
        }
        whole = {f"midlayer.{name}": sides for name, sides in layer.items()}
        whole["fc"] = [hidden_size, 3 * hidden_size]
        whole["norm"] = [hidden_size]
        whole["lm_head"] = [tokens, hidden_size]
        return {f"{name}.weight": sides for name, sides in whole.items()}

    def write(self, place: Path) -> None:
        """Write the tensors as SpecForge reads them."""
        place.mkdir(exist_ok=True)
        kept = {
            name: tensor if name in ("d2t", "t2d") else tensor.to(torch.bfloat16)
            for name, tensor in self._tensors.items()
            if not name.startswith(OF_THE_MODEL)
        }
        save_file(kept, place / "model.safetensors", metadata={"format": "pt"})
        whole.date(place / "model.safetensors")


def mapping_of(tokens: list[int], vocab_size: int) -> dict[str, torch.Tensor]:
    """Say how far each of the head's tokens is from the model's, and which of those it has."""
    chosen = torch.tensor(tokens)
    present = torch.zeros(vocab_size, dtype=torch.bool)
    present[chosen] = True
    return {"d2t": chosen - torch.arange(len(tokens)), "t2d": present}


def _read(place: Path) -> dict[str, torch.Tensor]:
    files = sorted(place.glob("*.safetensors"))
    if not files:
        raise OSError("it has no safetensors")
    tensors = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no mapping
                tensors[_plain(name)] = opened.get_tensor(name)
    return tensors


def _plain(name: str) -> str:
    bare = name.removeprefix("model.")
    for theirs, ours in NAMES.items():
        if bare.startswith(theirs):
            return ours + bare.removeprefix(theirs)
    return bare
