"""Checks of CycloneDX documents that its schema does not make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any


def faults_of(document: dict[str, Any]) -> list[str]:
    """Return what is wrong: dangling or repeated refs, model cards and versions out of place."""
    components = list(_components(document))
    refs = Counter(one["bom-ref"] for one in components)
    found = [f"{ref} stands twice" for ref, count in refs.items() if count > 1]
    used = [*_used(document), *_datasets(components)]
    found += [f"{ref} is nowhere" for ref in used if ref not in refs]
    found += [
        f"{one['bom-ref']} has a model card"
        for one in components
        if "modelCard" in one and one["type"] != "machine-learning-model"
    ]
    stated = Counter(one["ref"] for one in document["dependencies"])
    found += [f"{ref} depends twice" for ref, count in stated.items() if count > 1]
    if document["specVersion"] != "1.6":
        found.append("another version")
    return found


def _components(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [document["metadata"]["component"], *document["components"]]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.get("components", [])
        waiting += one.get("pedigree", {}).get("ancestors", [])


def _used(document: dict[str, Any]) -> Iterator[str]:
    for one in document["dependencies"]:
        yield from (one["ref"], *one.get("dependsOn", ()))
    for one in document["compositions"]:
        yield from one["assemblies"]


def _datasets(components: list[dict[str, Any]]) -> Iterator[str]:
    for one in components:
        parameters = one.get("modelCard", {}).get("modelParameters", {})
        yield from (data["ref"] for data in parameters.get("datasets", ()) if "ref" in data)
