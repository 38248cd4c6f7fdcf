"""What the model says of each text, as SpecForge reads it from files.

A record is what SpecForge's `scripts/prepare_hidden_states.py` leaves for EAGLE-3: `input_ids`,
`loss_mask`, `aux_hidden_state` (the inputs of three layers, side by side) and `hidden_state` (what
the model's head reads).  That script computes them with SGLang; here transformers does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import whole
from packager_worker import BadInput, Rejected, Report
from settings import TARGET
from texts import Row, proposals
from transformers import AutoConfig, AutoModelForCausalLM

WEIGHTS = "weights.bin"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def load_config(place: Path) -> Any:
    """Load what shapes the model: that of its text part where it has others."""
    try:
        config = AutoConfig.from_pretrained(place)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"the model's configuration cannot be loaded: {error}") from error
    if getattr(config, "quantization_config", None):
        raise Rejected(
            "the model is quantized",
            "train with the checkpoint that it was made from: the head serves both",
        )
    return config.get_text_config()


class Features:
    """Records below the work directory, made where they are not."""

    def __init__(
        self, model: Path, work: Path, layers: Sequence[int], dtype: str, gpus: int
    ) -> None:
        self._place = model
        self._work = work
        self._layers = layers
        self._dtype = getattr(torch, dtype)
        self._gpus = gpus
        self._model: Any = None

    def prepare(self, rows: Sequence[Row], name: str, report: Report) -> list[Path]:
        """Give a file for each row, in order."""
        place = self._work / name
        place.mkdir(parents=True, exist_ok=True)
        files = [place / f"{number:08}.ckpt" for number in range(len(rows))]
        for number, (file, row) in enumerate(zip(files, rows, strict=True)):
            report.progress("asking the model", number, len(rows))
            if not whole.is_whole(file):
                whole.write(file, self._record(row, report))
        return files

    def prepare_target(self, report: Report) -> None:
        """Lay the model's embedding and head out as a model of their own: no more is asked for.

        Whatever they are called in the model, tied or not, here they have the names that
        SpecForge looks for.
        """
        place = self._work / TARGET
        place.mkdir(exist_ok=True)
        if whole.is_whole(place / WEIGHTS):
            return
        model = self._loaded(report)
        config = {**load_config(self._place).to_dict(), "tie_word_embeddings": False}
        _write_json(place / "config.json", config)
        index = {"metadata": {}, "weight_map": {EMBEDDING: WEIGHTS, HEAD: WEIGHTS}}
        _write_json(place / f"{WEIGHTS}.index.json", index)
        tables = {
            EMBEDDING: model.get_input_embeddings().weight,
            HEAD: model.get_output_embeddings().weight,
        }
        kept = {name: table.detach().to("cpu", torch.bfloat16) for name, table in tables.items()}
        whole.write(place / WEIGHTS, kept)

    def let_go(self) -> None:
        """Free the model's memory."""
        self._model = None
        if self._gpus:
            torch.cuda.empty_cache()

    @torch.no_grad()
    def _record(self, row: Row, report: Report) -> dict[str, torch.Tensor]:
        model = self._loaded(report)
        ids = torch.tensor([row.ids], device=model.device)
        told = model.base_model(ids, output_hidden_states=True, use_cache=False)
        states = [told.hidden_states[layer].cpu() for layer in self._layers]
        last = told.last_hidden_state.cpu()
        if last.isnan().any():
            raise Rejected("the model computes what is no number", "its weights are broken")
        return {
            "input_ids": torch.tensor(row.ids),
            "loss_mask": torch.tensor(proposals(row), dtype=torch.long),
            "hidden_state": last.to(torch.bfloat16),
            "aux_hidden_state": torch.cat(states, -1).to(torch.bfloat16),
        }

    def _loaded(self, report: Report) -> Any:
        if self._model is None:
            with report.busy("loading the model"):
                self._model = _load(self._place, self._dtype, self._gpus)
        return self._model


def _load(place: Path, dtype: torch.dtype, gpus: int) -> Any:
    """Load the model whole, or say what is missing: transformers would fill in random numbers."""
    try:
        model, told = AutoModelForCausalLM.from_pretrained(
            place, dtype=dtype, trust_remote_code=False, output_loading_info=True,
            device_map={0: None, 1: "cuda"}.get(gpus, "auto"),
        )  # fmt: skip
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"the model's checkpoint cannot be loaded: {first[:300]}") from error
    missing = [*told["missing_keys"], *map(str, told["mismatched_keys"])]
    if missing:
        raise BadInput(f"the model lacks {len(missing)} tensors, such as {sorted(missing)[0]!r}")
    _check_head(model)
    return model.eval()


@torch.no_grad()
def _check_head(model: Any) -> None:
    """Refuse a model that does more to its last state than multiply: SpecForge does no more."""
    ids = torch.tensor([[1, 2, 3, 4]], device=model.device)
    last = model.base_model(ids, use_cache=False).last_hidden_state
    table = model.get_output_embeddings().weight
    told = model(ids, use_cache=False).logits.float()
    computed = (last.to(table.device) @ table.T).float().to(told.device)
    if not torch.allclose(told, computed, rtol=2e-2, atol=2e-2 * float(told.abs().max())):
        raise Rejected(
            "the model scales, bounds or shifts what its head computes, which SpecForge does not",
            "train with `--trainer speculators`",
        )


def _write_json(place: Path, value: object) -> None:
    place.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
