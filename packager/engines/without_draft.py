"""Start of an image of ours without its draft: variables to set, or to remove (None).

The rest of the image stays unchanged, so that only the draft makes the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.serving import DRAFT_DIR, MODEL_DIR, SERVING_DIR
from packager.images.stored import RECORD

SWITCH = "PACKAGER_SPECULATION"  # read by `launch.py`
_BY_ENVIRONMENT = ("SM_VLLM_SPECULATIVE_", "SM_SGLANG_SPECULATIVE_")
_TGI_MODEL = ("MODEL_ID", "HF_MODEL_ID")

Changes = Mapping[str, str | None]


def without_draft(config: Mapping[str, Any]) -> Changes | None:
    """Return the changes that disable the draft; None where no variable does.

    LMI has the draft in serving.properties, which wins over every variable.
    """
    env = environment_of(config)
    if f"{SERVING_DIR}/launch.py" in (config.get("Entrypoint") or ()):
        return {SWITCH: "off"}
    by_name: Changes = {name: None for name in env if name.startswith(_BY_ENVIRONMENT)}
    if by_name:
        return by_name
    draft = draft_of(config)
    if draft == "ngram" and "SPECULATE" in env:
        return {"SPECULATE": None}
    heads: Changes = {name: MODEL_DIR for name in _TGI_MODEL if env.get(name) == DRAFT_DIR}
    if draft == "medusa" and heads:
        return {**heads, "SPECULATE": None}
    return None


def draft_of(config: Mapping[str, Any]) -> str | None:
    """Return the kind of draft that an image of ours was built with; None for other images."""
    record = _record_of(config)
    if record is None:
        return None
    draft = record.get("draft")
    return str(draft.get("kind", "")) if isinstance(draft, dict) else ""


def precision_of(config: Mapping[str, Any]) -> str:
    """Return the precision that an image of ours was planned with; "" for others' images."""
    return str((_record_of(config) or {}).get("precision", ""))


def environment_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of an image's configuration."""
    listed = config.get("Env")
    entries = listed if isinstance(listed, list) else []
    pairs = (entry.partition("=") for entry in entries if isinstance(entry, str))
    return {name: value for name, _, value in pairs}


def _record_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    labels = config.get("Labels")
    label = labels.get(RECORD) if isinstance(labels, dict) else None
    if not isinstance(label, str):
        return None
    try:
        return parse_object(label.encode())
    except (NotStrict, UnicodeEncodeError):
        return None
