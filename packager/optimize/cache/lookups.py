"""The cache look-ups of the last build, stored to explain its misses.

    lookups.json     in the state directory: the steps of the last build that asked

A miss becomes a hit once it was built: only this file still explains the miss.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packager.core.documents import NotStrict, parse_json
from packager.core.errors import PackagerError
from packager.core.files.atomic import read_regular, write_atomically
from packager.core.recipe import Step

if TYPE_CHECKING:
    from artifact_cache.explain import Explanation, Neighbour

MAX_BYTES = 4 * 1024**2


class LastLookups:
    """Notes the look-ups of one build; the next build replaces them."""

    def __init__(self, state_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = state_dir / "lookups.json"
        self._clock = clock
        self._noted: dict[str, dict[str, Any]] = {}  # by step: the last look-up of each

    def remember(self, step: Step, found: Explanation) -> None:
        """Store a look-up. Never raises."""
        from artifact_cache.key import plain

        assert step.key is not None
        self._noted[step.name] = {
            "step": step.name,
            "labels": dict(step.labels),
            "at": int(self._clock()),
            "document": plain(step.key),
            **explanation_document(found),
        }
        with suppress(OSError, PackagerError, ValueError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(list(self._noted.values())).encode())

    def last(self) -> tuple[Mapping[str, Any], ...]:
        """Return the look-ups of the last build; empty when none can be read."""
        try:
            noted = parse_json(read_regular(self._path, MAX_BYTES), max_bytes=MAX_BYTES)
        except (OSError, NotStrict):
            return ()
        listed = noted if isinstance(noted, list) else []
        return tuple(one for one in listed if isinstance(one, dict))


def explanation_document(found: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON."""
    return {
        "key": found.key,
        "hit": found.hit,
        "fault": found.fault,
        "failure": asdict(found.failure) if found.failure else None,
        "nearest": [neighbour_document(one) for one in found.nearest],
    }


def neighbour_document(one: Neighbour) -> dict[str, Any]:
    """Return a nearby entry as JSON."""
    return {
        "key": one.entry.key,
        "labels": dict(one.entry.labels),
        "built_at": one.entry.built_at,
        "differences": [asdict(difference) for difference in one.differences],
    }
