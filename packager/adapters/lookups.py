"""What the last build asked the artifact cache, so that it can be explained afterwards.

    lookups.json     in the state directory: the steps of the last build that asked

Once a miss was built it is a hit: only what was noted then says why it missed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packager.adapters.files import read_regular, write_atomically
from packager.core.documents import NotStrict, parse_json
from packager.core.recipe import Step
from packager.errors import PackagerError

if TYPE_CHECKING:
    from artifact_cache.explain import Explanation, Neighbour

MAX_BYTES = 4 * 1024**2


class LastLookups:
    """Notes the look-ups of one build; the next build replaces them."""

    def __init__(self, state_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = state_dir / "lookups.json"
        self._clock = clock
        self._noted: dict[str, dict[str, Any]] = {}  # by step: what was foreseen is then asked for

    def remember(self, step: Step, found: Explanation) -> None:
        """Note a look-up. Never raises: it is a help for people, and no part of the work."""
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
        """Give the look-ups of the last build; nothing where nothing readable is noted."""
        try:
            noted = parse_json(read_regular(self._path, MAX_BYTES), max_bytes=MAX_BYTES)
        except (OSError, NotStrict):
            return ()
        listed = noted if isinstance(noted, list) else []
        return tuple(one for one in listed if isinstance(one, dict))


def explanation_document(found: Explanation) -> dict[str, Any]:
    """Give an explanation as JSON."""
    return {
        "key": found.key,
        "hit": found.hit,
        "fault": found.fault,
        "failure": asdict(found.failure) if found.failure else None,
        "nearest": [neighbour_document(one) for one in found.nearest],
    }


def neighbour_document(one: Neighbour) -> dict[str, Any]:
    """Give an entry that is there instead as JSON."""
    return {
        "key": one.entry.key,
        "labels": dict(one.entry.labels),
        "built_at": one.entry.built_at,
        "differences": [asdict(difference) for difference in one.differences],
    }
