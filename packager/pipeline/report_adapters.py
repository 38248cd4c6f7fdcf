"""Adapters of a plan, in words and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packager.core.adapters import AdapterPlan
from packager.core.units import counted, decimal, gib

MOST_NAMED = 5


def adapters_document(adapters: AdapterPlan) -> dict[str, Any]:
    """Return the adapters as a plan's JSON has them."""
    return {
        "slots": adapters.slots,
        "rank": adapters.rank,
        "device_bytes": adapters.device_bytes,
        "host_bytes": adapters.host_bytes,
        "runtime": adapters.runtime,
        "adapters": [
            {
                "name": one.name,
                "source": one.ref.source,
                "model": one.ref.name,
                "revision": one.ref.revision,
                "directory": one.directory,
                "rank": one.rank,
                "modules": list(one.leaves),
                "bytes": one.size,
                "rewritten": list(one.rewrite.why) if one.rewrite else [],
            }
            for one in adapters.adapters
        ],
    }


def adapter_sentences(adapters: AdapterPlan | None) -> Iterator[str]:
    """Describe what is served beside the base, and where it is kept."""
    if adapters is None:
        return
    names = [one.name for one in adapters.adapters]
    named = ", ".join(names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    if names:
        yield f"{counted(len(names), 'adapter')} beside the base: {named}{more}"
    kept = f"{counted(adapters.slots, 'slot')} of rank {adapters.rank}"
    yield f"{kept} on each device take {gib(adapters.device_bytes)} of its weights' memory"
    if adapters.waiting:
        size = decimal(adapters.host_bytes)
        yield f"all {len(names)} are kept in the host's memory: {size} for each process"
