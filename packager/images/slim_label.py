"""The label of a slim base, which names the machines that it was made for.

It is untrusted, so it can only refuse a build: a label that states missing kernels is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.core.image import BaseImage
from packager.core.instance import Instance
from packager.core.units import decimal
from packager.images.oci import is_digest, shorten_list

LABEL = "dev.packager.slim"
_LONGEST = 16 * 1024


def refuse_other_machine(base: BaseImage, instance: Instance) -> None:
    """Refuse an instance whose kernels are not in the base, by what the base says of itself."""
    labels = (base.config.get("config") or {}).get("Labels") or {}
    if (why := _lacking(str(labels.get(LABEL) or ""), instance)) is None:
        return
    raise UsageError(
        f"base image {base.reference!r} was made slim for other machines than {instance.name}: "
        f"{why}",
        hint="name the base that it was made from, or make a slim one with "
        f"`packager base slim --instance {instance.name}`",
    )


def slim_words(label: str) -> str:
    """Return what a label says in a line; "" where there is none that can be read."""
    try:
        said = parse_object(label[:_LONGEST].encode()) if label else {}
    except NotStrict:
        return ""
    source, rules = said.get("from"), said.get("rules")
    if not is_digest(source) or not isinstance(rules, dict):
        return ""
    size = sum(found for found in rules.values() if isinstance(found, int) and found > 0)
    return f"made from {source}, without {decimal(size)} of its files"


def _lacking(label: str, instance: Instance) -> str | None:
    """Return what a base lacks for an instance; None without such a label."""
    if not label:
        return None
    try:
        if len(label) > _LONGEST:
            raise NotStrict("it is too long")
        said = parse_object(label.encode())
    except NotStrict as error:
        return f"its label {LABEL} cannot be read ({error})"
    kinds = _list(said, "kinds")
    if kinds and instance.kind not in kinds:
        return f"it is for {shorten_list(list(map(str, kinds)))}"
    capabilities = _list(said, "compute_capabilities")
    if capabilities and instance.compute_capability not in capabilities:
        named = shorten_list(list(map(str, capabilities)))
        return f"it has kernels of its own for compute capability {named} alone"
    missing = [str(name) for name in _list(said, "isa") if name not in instance.isa]
    if missing:
        return f"it needs a processor that is known to have {shorten_list(missing)}"
    return None


def _list(said: Mapping[str, Any], name: str) -> list[Any]:
    found = said.get(name)
    return found if isinstance(found, list) else []
