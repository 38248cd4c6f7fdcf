"""Medusa heads of version 1: residual layers on the last hidden state, and a vocabulary each.

Named as vLLM names them.  The layers have biases, though vLLM needs none: TGI
loads no heads without.  New heads begin as the model itself, its own vocabulary
behind layers that pass through what they get.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from packager_worker import BadInput, Rejected
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import silu

# vLLM's names and those of the authors, in whose the last layer makes tokens.
LAYER = re.compile(r"(?:.*\.)?blocks\.(\d{1,6})\.layers\.(\d{1,6})\.(?:linear\.)?(weight|bias)")
VOCABULARY = re.compile(r"(?:.*\.)?lm_heads\.(\d{1,6})\.weight")
AUTHORS_LAYER = re.compile(r"(?:.*\.)?(\d{1,6})\.(\d{1,6})\.linear\.(weight|bias)")
AUTHORS_VOCABULARY = re.compile(r"(?:.*\.)?(\d{1,6})\.\d{1,6}\.weight")


class Block(nn.Module):
    """Residual layers."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = hidden + silu(layer(hidden))
        return hidden


class Heads(nn.Module):
    """All heads; the k-th tells the token k + 2 places after the one whose state it sees."""

    def __init__(self, vocabulary: torch.Tensor, count: int, layers: int) -> None:
        super().__init__()
        tokens, size = vocabulary.shape
        self.blocks = nn.ModuleList(Block(size, layers) for _ in range(count))
        self.lm_heads = nn.ModuleList(nn.Linear(size, tokens, bias=False) for _ in range(count))
        with torch.no_grad():
            for head in self.lm_heads:
                head.weight.copy_(vocabulary)

    @property
    def count(self) -> int:
        return len(self.blocks)

    @property
    def layers(self) -> int:
        return len(self.blocks[0].layers)

    def logits(self, head: int, hidden: torch.Tensor) -> torch.Tensor:
        """Score all tokens with one head."""
        return self.lm_heads[head](self.blocks[head](hidden))

    def round(self) -> None:
        """Give the weights the values that the file will have."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(parameter.to(torch.bfloat16))


def take_over(heads: Heads, place: Path) -> int:
    """Fill in trained heads, in vLLM's names or their authors'; give how many there were.

    What heads may lack changes nothing as it stands: biases are zero, and those of
    version 2, which have no vocabulary, use the model's.
    """
    given = _read(place)
    count = 1 + max(int(name.split(".")[1]) for name in given)
    layers = len({name.split(".")[3] for name in given if name.startswith("blocks.")})
    if layers != heads.layers:
        raise Rejected(
            f"the given heads have {layers} layers each; {heads.layers} are asked for",
            f"ask for {layers}",
        )
    vocabularies = any(name.startswith("lm_heads.") for name in given)
    missing = sorted(_needed(count, layers, vocabularies=vocabularies) - given.keys())
    if missing:
        raise BadInput(f"the given heads lack {len(missing)} tensors, such as {missing[0]!r}")
    own = heads.state_dict()
    for name in own.keys() & given.keys():
        if own[name].shape != given[name].shape:
            raise Rejected(
                f"{name!r} of the given heads has the shape {list(given[name].shape)}; "
                f"the model needs {list(own[name].shape)}",
                "go on with heads that were trained for this model",
            )
        own[name].copy_(given[name])
    return count


def _needed(count: int, layers: int, *, vocabularies: bool) -> set[str]:
    """Name what whole heads have."""
    names = {f"blocks.{h}.layers.{layer}.weight" for h in range(count) for layer in range(layers)}
    return names | ({f"lm_heads.{head}.weight" for head in range(count)} if vocabularies else set())


def write(heads: Heads, place: Path) -> None:
    """Write the heads, and a config.json by which vLLM up to 0.32 serves them."""
    tensors = {name: one.to("cpu", torch.bfloat16) for name, one in heads.state_dict().items()}
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(_config(heads), indent=2, sort_keys=True)
    (place / "config.json").write_text(text + "\n", encoding="utf-8")


def _config(heads: Heads) -> dict[str, Any]:
    """Say it to vLLM and TGI. TGI wants no `architectures`, and vLLM needs none.

    TGI wants the model's path, too, which is known where an image is made.
    """
    tokens, size = heads.lm_heads[0].weight.shape
    return {
        "model_type": "medusa",
        "hidden_size": size,
        "vocab_size": tokens,
        "truncated_vocab_size": tokens,
        "num_heads": heads.count,
        "num_hidden_layers": heads.layers,
        "medusa_num_heads": heads.count,
        "medusa_num_layers": heads.layers,
        "medusa_fc_bias": True,  # without it vLLM drops the biases
    }


def _read(place: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of heads under the names that they have here."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(place.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise BadInput(f"{file.name} of the given heads cannot be read: {error}") from error
    if any(name.rpartition(".")[2] == "token_map" for name in found):
        raise Rejected(
            "the given heads know a part of the vocabulary only",
            "go on with heads that know all of it",
        )
    named = {name_of(name): tensor for name, tensor in found.items() if name_of(name)}
    if not named:
        raise BadInput(
            "what is given to go on with holds no Medusa heads",
            "tensors are `blocks.0.layers.0.weight` and on, or `0.0.linear.weight` and on",
        )
    return named


def name_of(name: str) -> str:
    """Give a tensor's name in a file of ours; "" when it is none of a head's."""
    if match := LAYER.fullmatch(name) or AUTHORS_LAYER.fullmatch(name):
        return f"blocks.{int(match[1])}.layers.{int(match[2])}.{match[3]}"
    if match := VOCABULARY.fullmatch(name) or AUTHORS_VOCABULARY.fullmatch(name):
        return f"lm_heads.{int(match[1])}.weight"
    return ""
