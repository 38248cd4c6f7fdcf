"""Published speeds as set-ups of the speed model.

`published_points.csv` has the points, each with its source; `published_models.toml` the sizes of
their models.  Models that aiconfigurator describes are read from a copy of its data.
"""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speed_data import FORMATS, config_of, served_model

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.estimate.performance.served import ServedModel, Setup

HERE = Path(__file__).parent
POINTS = HERE / "published_points.csv"
MODELS = HERE / "published_models.toml"
SPELLED = {"A100-80": "A100-80", "RTX PRO Server 6000": "RTX-PRO-6000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published point: a time per token, or the tokens a second of the whole server."""

    source: str
    date: str
    model: str
    setup: Setup
    input_tokens: int
    output_tokens: int
    concurrency: float
    tpot_s: float | None
    output_tokens_s: float | None
    ttft_s: float | None  # median, of a client that keeps so many requests running
    judged: bool  # one that predictions are held against by `predict.py`

    @property
    def set_name(self) -> str:
        """Return what points of one set share: where it stands, the model and its layout."""
        setup = self.setup
        place = f"{setup.engine} {setup.tp_degree}x{setup.accelerator.name}"
        return f"{self.source.partition(':')[0]} {self.model} {setup.model.scheme} {place}"


def read_published(data: Path) -> list[Published]:
    """Read all published points; `data` is a copy of aiconfigurator's."""
    models = tomllib.loads(MODELS.read_text(encoding="utf-8"))
    lines = POINTS.read_text(encoding="utf-8").splitlines()
    return [_point(row, models, data) for row in csv.DictReader(lines)]


def _point(row: dict[str, str], models: dict[str, Any], data: Path) -> Published:
    tp, experts = int(row["tp_degree"]), int(row["expert_degree"])
    instance = find_instance(f"8x{SPELLED.get(row['device'], row['device'])}")
    return Published(
        source=row["source"],
        date=row["date"],
        model=row["model"],
        setup=Setup(
            model=_model(models[row["model"]], models, row["weights"], tp, data),
            accelerator=accelerator_of(instance),
            tp_degree=tp,
            engine=row["engine"],
            engine_version=row["version"],
            expert_parallel=experts > 1,
        ),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        concurrency=float(row["concurrency"]),
        tpot_s=float(row["tpot_ms"]) / 1e3 if row["tpot_ms"] else None,
        output_tokens_s=float(row["output_tokens_s"]) if row["output_tokens_s"] else None,
        ttft_s=float(row["ttft_ms"]) / 1e3 if row["ttft_ms"] else None,
        judged=row["judged"] == "1",
    )


def _model(
    row: dict[str, Any], models: dict[str, Any], weights: str, tp: int, data: Path
) -> ServedModel:
    if "same" in row:
        row = models[row["same"]]
    if "sizes" in row:
        scheme, width = FORMATS[weights]
        sizes, routed = row["sizes"], row["routed_parameters"]
        return ServedModel(
            **sizes,
            weight_bytes=int(sizes["parameters"] * width),
            scheme=scheme,
            expert_share=routed / sizes["parameters"],
        )
    config = config_of(row["config"], data) if "config" in row else dict(row)
    known = config.pop("known", True)
    every = config.pop("full_attention_interval", 0)
    if every and "layer_types" not in config:
        other = "linear_attention" if "linear_key_head_dim" in config else "sliding_attention"
        config["layer_types"] = [
            "full_attention" if (layer + 1) % every == 0 else other
            for layer in range(config["num_hidden_layers"])
        ]
    return replace(served_model(config, weights, tp), known=known)
