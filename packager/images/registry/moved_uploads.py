"""Uploads that a registry redirects to another address: 307 and 308 to a PATCH or PUT.

go-containerregistry and containerd send the body again to where such an answer leads (Go's
`http.Client` with a `GetBody`), without credentials on another origin.  A layer here is read once,
so its next try goes on there, and later uploads wait for a redirect before their first byte.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from packager.images.registry.origins import Origin, origin_of

MOVED = (307, 308)
MOST_MOVES = 10  # of one request: as many as Go's client follows
EARLY_S = 1.0  # for the redirect of a registry that has sent one before


class MovedUploads:
    """Addresses that uploads to one registry go on at. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._origins: set[Origin] = set()
        self._addresses: dict[tuple[str, str], list[str]] = defaultdict(list)

    def add(self, asked: str) -> None:
        """Record that a body sent to an address was redirected."""
        with self._lock:
            self._origins.add(origin_of(asked))

    def keep(self, repository: str, digest: str, address: str) -> None:
        """Keep the address of an upload without bytes for the next try; "": of any blob."""
        with self._lock:
            self._addresses[repository, digest].append(address)

    def take(self, repository: str, digest: str) -> str:
        """Return the address of an upload that waits for a blob; "" where there is none."""
        with self._lock:
            for waiting in (self._addresses[repository, digest], self._addresses[repository, ""]):
                if waiting:
                    return waiting.pop()
            return ""

    def is_likely(self, url: str) -> bool:
        """Whether bodies to this origin have been redirected."""
        with self._lock:
            return origin_of(url) in self._origins
