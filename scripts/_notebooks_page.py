"""The page about AWS's own notebooks: which run as they are, and which lines change."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], Iterable[str]]
INTRODUCTION = (
    "AWS's own notebooks, run as they are by `scripts/run-notebooks` against `packager api start`,"
    " with the variables of `packager api env` and nothing else. A small model stands for those of"
    " hubs, buckets and JumpStart, an engine that answers at once for AWS's images; jobs, endpoints"
    " and buckets are real. Cells that install packages are counted and left out, pauses are cut"
    " short, and the next cell waits until jobs have ended. The server runs with `--no-measure`: no"
    " optimization job is measured before and after. What each asked is in"
    " `tests/support/data/sagemaker/notebooks.json`, and a test of `make test` asks it again."
)


def notebooks_page(folder: Path, table: Table) -> str:
    """Write the page from the list of notebooks and what they asked."""
    listed = tomllib.loads((folder / "notebooks.toml").read_text(encoding="utf-8"))["notebook"]
    facts = json.loads((folder / "notebooks.json").read_text(encoding="utf-8"))
    rows = [row for row in listed if row["name"] in facts]
    lines = ["# AWS's own notebooks", "", "Made by `scripts/make-reference`.", "", INTRODUCTION]
    head = ("notebook", "SDK", "cells", "that install", "that fail", "requests")
    lines += ["", *table(head, (_row(row, facts[row["name"]]) for row in rows))]
    missing = [_link(row) for row in listed if row["name"] not in facts]
    if missing:
        lines += ["", f"Listed, and not run: {', '.join(missing)}."]
    lines += ["", "## Lines that change", ""]
    changes = [
        (_link(row), f"`{old}`", "a name of yours") for row in rows for old in row.get("fill", {})
    ]
    lines += [*table(("notebook", "line", "becomes"), changes)]
    lines += ["", "## Cells that fail", ""]
    lines += [
        "A cell that only misses what a failed one before it would have made is not listed.",
        "",
    ]
    failed = [one for row in rows for one in _failures(row, facts[row["name"]])]
    lines += [*table(("notebook", "cell", "what it says", "why"), failed)]
    return "\n".join(lines) + "\n"


def _link(row: Mapping[str, Any]) -> str:
    place = f"https://github.com/{row['repository']}/blob/{row['commit']}/{row['path']}"
    return f"[{row['name']}]({place})"


def _row(row: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    sdk = {"v2": "2", "v3": "3", "boto3": "boto3"}[row["sdk"]]
    services = {call["service"] for call in found["asked"]}
    counts = (found["cells"], found["installs"], len(found["failed"]), len(found["asked"]))
    names = f" of {', '.join(sorted(services))}" if services else ""
    return (_link(row), sdk, *map(str, counts[:3]), f"{counts[3]}{names}")


def _failures(row: Mapping[str, Any], found: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    why = row.get("why", {})
    for one in found["failed"]:
        if not one["error"].startswith("NameError"):
            text = " ".join(one["error"].split()).replace("|", "\\|").replace("`", "'")
            shown = text if len(text) <= 160 else f"{text[:157]}…"
            yield _link(row), str(one["cell"]), f"`{shown}`", why.get(str(one["cell"]), "")
