"""Models that have been optimized before, read from `data/models.csv` and `data/drafts.toml`.

The table has one row for each statement of a source; rows about the same model are merged here.  A
row without a model describes an architecture.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from packager.core.catalog import CatalogModel, KnownDraft
from packager.core.checkpoint import QuantizedCheckpoint
from packager.core.share import read_shipped

DATA = Path(__file__).parent / "data"
MODELS_TABLE = DATA / "models.csv"
DRAFTS_TABLE = DATA / "drafts.toml"
CHECKPOINTS_TABLE = DATA / "checkpoints.toml"

SAID = {"Yes": True, "No": False}


@cache
def models(extra: tuple[CatalogModel, ...] = ()) -> tuple[CatalogModel, ...]:
    """List every model once, the user's own first; those win over shipped ones by hub id."""
    taken = {model.hf_id for model in extra}
    merged: dict[tuple[str, str], CatalogModel] = {}
    for model in _statements():
        if not model.hf_id or model.hf_id in taken:
            continue
        key = _same_model(merged, model)
        merged[key] = _merge(merged[key], model) if key in merged else model
    return extra + tuple(merged.values())


def find_model(name: str, extra: tuple[CatalogModel, ...] = ()) -> CatalogModel | None:
    """Find a model by its hub id or its JumpStart id, whatever the letters' case."""
    wanted = name.lower()
    for model in models(extra):
        if wanted and wanted in (model.hf_id.lower(), model.jumpstart_id.lower()):
            return model
    return None


def similar_model(name: str) -> str:
    """Return the hub id of the published model that was meant, or "".

    A name without an organization is compared with the names of models, and with JumpStart ids.
    """
    known = find_model(name)
    if known is not None:
        return "" if known.hf_id == name else known.hf_id
    wanted = name.lower()
    ids = {hf_id.lower(): hf_id for hf_id in _published()}
    if "/" not in name:
        ids = {lower.rpartition("/")[2]: hf_id for lower, hf_id in ids.items()}
        ids |= {one.jumpstart_id: one.jumpstart_id for one in models() if one.jumpstart_id}
    close = difflib.get_close_matches(wanted, ids, n=1, cutoff=0.8)
    return ids[close[0]] if close else ""


@cache
def eagle_dispatch() -> Mapping[str, str]:
    """Return which EAGLE SageMaker trains per architecture: `eagle3` or `eagle2`."""
    return {model.architecture: model.eagle for model in _statements() if model.eagle}


@cache
def quantized_checkpoints(hf_id: str) -> tuple[QuantizedCheckpoint, ...]:
    """Return published checkpoints of a model with 4 bits a weight, whatever the letters' case."""
    wanted = hf_id.lower()
    table = read_shipped(CHECKPOINTS_TABLE)["checkpoint"]
    return tuple(QuantizedCheckpoint(**row) for row in table if row["model"].lower() == wanted)


@cache
def known_drafts() -> Mapping[str, tuple[KnownDraft, ...]]:
    """List published drafts by the hub id of the model they propose for."""
    table = read_shipped(DRAFTS_TABLE)
    found: dict[str, tuple[KnownDraft, ...]] = {}
    for row in table["draft"]:
        draft = KnownDraft(
            kind=row["kind"],
            reference=row["reference"],
            license=row.get("license", ""),
            weights=row.get("weights", ""),
            note=row.get("note", ""),
            source=row["source"],
            date=row["date"],
        )
        for model in row["models"]:
            found[model] = (*found.get(model, ()), draft)
    return found


def drafts_for(hf_id: str) -> tuple[KnownDraft, ...]:
    """Return the published drafts of a model; the name's case is ignored."""
    wanted = hf_id.lower()
    for model, drafts in known_drafts().items():
        if model.lower() == wanted:
            return drafts
    return ()


def drafts_of(hf_id: str, extra: tuple[CatalogModel, ...] = ()) -> tuple[KnownDraft, ...]:
    """Return a model's drafts, the user's own before published ones."""
    known = find_model(hf_id, extra)
    if known is None:
        return drafts_for(hf_id)
    own: tuple[KnownDraft, ...] = ()
    if known in extra and known.draft_model:
        draft = KnownDraft(
            kind="draft_model", reference=known.draft_model, source=known.source, date=known.date
        )
        own = (draft,)
    return (*own, *(known.drafts or drafts_for(hf_id)))


def _published() -> tuple[str, ...]:
    """Return every hub id that the tables name."""
    table = read_shipped(CHECKPOINTS_TABLE)["checkpoint"]
    drafts = known_drafts()
    names = [model.hf_id for model in models()]
    names += [name for row in table for name in (row["model"], row["reference"])]
    names += [*drafts, *(draft.reference for found in drafts.values() for draft in found)]
    return tuple(dict.fromkeys(names))


@cache
def _statements() -> tuple[CatalogModel, ...]:
    with MODELS_TABLE.open(encoding="utf-8", newline="") as rows:
        return tuple(_statement(row) for row in csv.DictReader(rows))


def _statement(row: Mapping[str, str]) -> CatalogModel:
    return CatalogModel(
        family=row["family"],
        hf_id=row["hf_id"],
        jumpstart_id=row["jumpstart_id"],
        architecture=row["architecture"],
        quantization=SAID.get(row["quantization"]),
        speculative=SAID.get(row["speculative"]),
        sagemaker_draft=SAID.get(row["sagemaker_draft"]),
        precompiled_neuron=row["precompiled_neuron"] == "Yes",
        preoptimized=row["preoptimized"] == "Yes",
        eagle=row["eagle"],
        draft_model=row["draft_model"] if "/" in row["draft_model"] else "",
        drafts=drafts_for(row["hf_id"]),
        techniques=tuple(part.strip() for part in row["techniques"].split("|") if part.strip()),
        note=row["note"],
        source=row["source"],
        date=row["date"],
    )


def _same_model(
    merged: Mapping[tuple[str, str], CatalogModel], new: CatalogModel
) -> tuple[str, str]:
    for key in merged:
        if key[0] == new.hf_id and (new.jumpstart_id in ("", key[1])):
            return key
    return new.hf_id, new.jumpstart_id


def _merge(old: CatalogModel, new: CatalogModel) -> CatalogModel:
    def first(one: bool | None, other: bool | None) -> bool | None:
        return other if one is None else one

    return replace(
        old,
        quantization=first(old.quantization, new.quantization),
        speculative=first(old.speculative, new.speculative),
        sagemaker_draft=first(old.sagemaker_draft, new.sagemaker_draft),
        precompiled_neuron=old.precompiled_neuron or new.precompiled_neuron,
        preoptimized=old.preoptimized or new.preoptimized,
        eagle=old.eagle or new.eagle,
        draft_model=old.draft_model or new.draft_model,
        techniques=tuple(dict.fromkeys((*old.techniques, *new.techniques))),
        note="; ".join(dict.fromkeys(note for note in (old.note, new.note) if note)),
        source="; ".join(dict.fromkeys((old.source, new.source))),
        date=max(old.date, new.date),
    )
