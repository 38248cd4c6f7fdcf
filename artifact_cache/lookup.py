"""Look-up of a key in a store."""

from __future__ import annotations

from collections.abc import Callable

from artifact_cache.errors import CacheError, Corrupt
from artifact_cache.files import said
from artifact_cache.key import KeyDocument, plain
from artifact_cache.store import CacheStore, StoredEntry, address_of


def look_up(
    store: CacheStore, document: KeyDocument, on_fault: Callable[[CacheError | OSError], None]
) -> StoredEntry | None:
    address = address_of(document)
    try:
        stored = store.get(address)
        if stored is not None and stored.entry.keydoc != plain(document):
            raise Corrupt(f"entry {address.key[:12]}", "is for other inputs")
    except (CacheError, OSError) as error:
        on_fault(error)
        return None
    return stored


def reason_of(error: CacheError | OSError) -> str:
    if isinstance(error, CacheError):
        return error.message
    return said(error)
