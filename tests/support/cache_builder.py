"""A process that uses the cache: `builder.py ROOT INTO LOG SECONDS`.

Every build it starts is a line in LOG; the result is printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.support.cache_entries import CHECKPOINT, Build
from tests.support.cache_opening import open_local


def main(root: str, into: str, log: str, seconds: str) -> None:
    def build(directory: Path) -> None:
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")
        (directory / "begun").touch()
        time.sleep(float(seconds))
        (directory / "begun").unlink()
        Build(str(os.getpid()).encode())(directory)

    result = open_local(Path(root)).get_or_build(CHECKPOINT, build, Path(into))
    json.dump({"hit": result.hit, "stored": result.stored}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
