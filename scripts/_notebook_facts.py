"""Cells of a notebook, and what is kept of a run: facts, without names that differ each time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Dates, numbers and hex of names that a run makes, longest forms first.
MADE = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"
    r"|\d{4}(?:-\d{2}){5}-\d{3}"
    r"|\d{14}-[0-9a-f]{6}|\d{10}-[0-9a-f]{4,8}|(?<!\d)\d{6}-\d{4,6}(?!\d)"
    r"|(?<!\d)(?:\d{14}|20\d{6,10}|1[6-9]\d{8,11})(?!\d)"
    r"|(?<![0-9a-z])(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,32}(?![0-9a-z])"
)
DIGEST = 64
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):\d+")
BODIES = ("Body",)
CHANGES = ("Create", "Update", "Delete", "Stop", "Put", "Register", "Deregister")
OWN_PLACES = re.compile(r"/tmp/[\w./+-]+")


def notebook_cells(path: Path, fill: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the code cells with their numbers; what a reader must fill in is filled in."""
    if path.suffix == ".py":
        return [(0, filled(path.read_text(encoding="utf-8"), fill))]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (number, filled("".join(cell["source"]), fill))
        for number, cell in enumerate(cells)
        if cell["cell_type"] == "code" and "".join(cell["source"]).strip()
    ]


def filled(text: str, fill: Mapping[str, str]) -> str:
    for old, new in fill.items():
        text = text.replace(old, new)
    return text


def facts_of(journal: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run."""
    names: dict[str, str] = {}
    asked = [
        {
            **call,
            "parameters": scrubbed(call["parameters"], names),
            "answer": settled(call["answer"], names),
        }
        for call in journal["asked"]
        if call["service"] != "s3" or call["operation"] in ("CreateBucket", "GetObject")
    ]
    failed = [
        {"cell": cell["cell"], "error": settled(cell["error"], names)}
        for cell in journal["cells"]
        if "error" in cell
    ]
    kept = [
        {name: value for name, value in one.items() if value != ""}
        for one in without_repeats(asked)
    ]
    return {
        "cells": len(journal["cells"]),
        "installs": sum("installs" in cell for cell in journal["cells"]),
        "failed": failed,
        "asked": kept,
    }


def without_repeats(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each call once: of a client's look-ups there may be hundreds."""
    seen = set()
    for call in calls:
        key = json.dumps({**call, "cell": 0}, sort_keys=True)
        if call["operation"].startswith(CHANGES) or key not in seen:
            seen.add(key)
            yield call


def scrubbed(value: Any, names: dict[str, str]) -> Any:
    """Return parameters with names of ours for those that differ each time, and no texts."""
    if isinstance(value, Mapping):
        return {
            settled(name, names): body_shape(one) if name in BODIES else scrubbed(one, names)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [scrubbed(one, names) for one in value]
    return settled(value, names) if isinstance(value, str) else value


def settled(text: str, names: dict[str, str]) -> str:
    """Replace what differs each time by `n1`, `n2`, … in the order in which they come."""

    def name(found: re.Match[str]) -> str:
        made = names.setdefault(found[0], f"n{len(names) + 1}")
        return made[1:].rjust(DIGEST, "0") if len(found[0]) == DIGEST else made

    return MADE.sub(name, OWN_PLACES.sub("/tmp/work", ADDRESS.sub("127.0.0.1:1", text)))


def body_shape(body: Any) -> Any:
    """Return the body of an invocation with its own names and numbers, and texts of ours."""
    try:
        return json.dumps(without_texts(json.loads(body)))
    except (TypeError, ValueError):
        return str(body)[:80] if not isinstance(body, str) else "<text>"


def without_texts(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {one: without_texts(held, one) for one, held in value.items()}
    if isinstance(value, list):
        return [without_texts(one, name) for one in value]
    if isinstance(value, str):
        return value if name in ("role", "type", "model") else "text"
    return value
