"""Listings of layers that several processes keep at once, some of which are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from packager.images.rootfs.store import ListingStore

NAMES = [f"sha256:{at:064x}" for at in range(4)]
WRITE = """
import sys
from pathlib import Path
from packager.images.rootfs.store import ListingStore
store = ListingStore(Path(sys.argv[1]))
while True:
    for name in sys.argv[2:]:
        store.put(name, name.encode() * 40_000)
"""


def test_a_listing_is_whole_or_none_while_writers_race_and_are_killed(tmp_path: Path) -> None:
    whole = {name: name.encode() * 40_000 for name in NAMES}
    command = [sys.executable, "-c", WRITE, str(tmp_path), *NAMES]
    store, seen = ListingStore(tmp_path), set[str]()
    for _ in range(3):
        writers = [subprocess.Popen(command) for _ in range(2)]
        until = time.monotonic() + 30
        seen.clear()
        while len(seen) < len(NAMES) and time.monotonic() < until:
            for name in NAMES:
                found = store.get(name)
                assert found in (None, whole[name])
                seen |= {name} if found else set()
        for writer in writers:
            writer.kill()
            writer.wait()

    assert seen == set(NAMES)
    assert {name: store.get(name) for name in NAMES} == whole
