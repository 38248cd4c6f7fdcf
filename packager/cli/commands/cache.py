"""`packager cache`; its commands are in the modules beside."""

from __future__ import annotations

import click

from packager.cli.commands.cache_entries import clear_negative, failures, ls, show, stats
from packager.cli.commands.cache_explain import explain
from packager.cli.commands.cache_keys import keygen, trust
from packager.cli.commands.cache_moves import export, import_
from packager.cli.commands.cache_upkeep import gc, pin, pins, unpin, verify


@click.group()
def cache() -> None:
    """List, verify, clean up, copy and explain entries of the artifact cache.

    Keys may be shortened as far as they stay unique.

    \b
    Status: 0 done; 2 wrong arguments; 65 something in the cache, an archive or a
    tree is damaged or refused; 66 no such entry; 69 busy, try again; 74 the cache
    cannot be written; 77 nobody trusted vouches for an entry.
    """


for command in (
    *(ls, show, stats, failures, clear_negative),
    *(verify, gc, pin, unpin, pins),
    *(export, import_, explain, keygen, trust),
):
    cache.add_command(command)
