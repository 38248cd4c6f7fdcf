"""What a node cache holds of an image, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packager.addons.nodes.node_cache.fill import NodeCacheReport
from packager.core.text import escape
from packager.core.units import counted, decimal


def node_cache_document(report: NodeCacheReport) -> dict[str, Any]:
    """Return the report as JSON."""
    return {
        "image": report.image,
        "digest": report.digest,
        "directory": str(report.directory),
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written,
        "layers": [
            {
                "digest": entry.layer.descriptor.digest,
                "diff_id": entry.layer.diff_id,
                "role": entry.layer.role,
                "state": entry.state.replace(" ", "-"),
                "path": None if entry.state == "passed over" else str(entry.path),
                "size": entry.size,
                "root_hash": entry.root_hash or None,
                "note": entry.note or None,
            }
            for entry in report.entries
        ],
    }


def node_cache_lines(report: NodeCacheReport) -> Iterator[str]:
    """Yield the report in a line, and one more for each layer that has something to say."""
    states = [entry.state for entry in report.entries]
    parts = [f"{states.count('made')} made", f"{states.count('kept')} kept"]
    if passed_over := states.count("passed over"):
        parts.append(f"{passed_over} passed over")
    yield (
        f"{counted(len(states), 'layer')}: {', '.join(parts)}; read {decimal(report.bytes_read)}, "
        f"wrote {decimal(report.bytes_written)}"
    )
    for entry in report.entries:
        if entry.note:
            # Findings contain untrusted names.
            yield f"  {entry.layer.role} {entry.layer.descriptor.digest}: {escape(entry.note)}"
