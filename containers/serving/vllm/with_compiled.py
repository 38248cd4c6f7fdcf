"""Put in place what was compiled ahead of time, then become the image's own entrypoint.

For images whose own program starts the server: `with_compiled.py ENTRYPOINT [ARGUMENT]...`.
`PACKAGER_COMPILED` names the directory of compiled files; `PACKAGER_COMPILED=off` leaves it alone.
The process stays the first of the container: the entrypoint gets its signals and ends it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import compiled_cache  # beside this file

COMMAND_NOT_FOUND = 127


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Return a status only where the entrypoint cannot be run."""
    environment = dict(environment)
    compiled_cache.prepare(environment)
    try:
        os.execvpe(words[0], list(words), environment)
    except OSError as error:
        print(
            f"error: cannot run {words[0]!r}: {error.strerror}\n"
            "hint: the base image is another than the one that this was built for",
            file=sys.stderr,
        )
    return COMMAND_NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
