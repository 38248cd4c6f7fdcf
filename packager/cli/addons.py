"""Commands of add-ons: found by the entry points of `packager.commands`, imported when run.

An entry point is named for its add-on, and its value is a table as `LazyGroup.sections` is, in
which a command of a group is named with it: `draft measure`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias, cast

from packager.cli.plugins.rows import entry_points_of, load_entry_point

Rows: TypeAlias = Mapping[str, tuple[str, str]]  # name → module:function, summary in `--help`
GROUP = "packager.commands"


@cache
def added_commands(group: str) -> Mapping[str, Rows]:
    """Return what add-ons add to a group, "" for `packager` itself: heading → rows."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for point in entry_points_of(GROUP, tuple(sys.path)).values():
        table = cast("Mapping[str, Rows]", load_entry_point("add-on", point))
        for heading, rows in table.items():
            for name, row in rows.items():
                above, _, last = name.rpartition(" ")
                if above == group:
                    found.setdefault(heading, {})[last] = row
    return found
