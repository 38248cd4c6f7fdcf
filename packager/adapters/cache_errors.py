"""Errors of the artifact cache as the command line knows them, with their exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from artifact_cache.errors import (
    CacheError,
    StoreUnavailable,
    Unpublishable,
    Untrusted,
    UnusableKeys,
    UnusablePin,
)
from artifact_cache.opening import BadTier
from packager.errors import AccessDenied, OutputFailed, PackagerError, UsageError


class CacheRefused(PackagerError):
    """What was to be taken from, or into, the cache is damaged or not what it claims to be."""

    exit_code = 65


@contextmanager
def explained_cache_errors() -> Iterator[None]:
    """Turn what `artifact_cache` raises into an explained failure."""
    try:
        yield
    except CacheError as error:
        raise _kind(error)(error.message, hint=error.hint) from error


def _kind(error: CacheError) -> type[PackagerError]:
    match error:
        case BadTier() | UnusableKeys() | UnusablePin():
            return UsageError
        case Untrusted():
            return AccessDenied
        case StoreUnavailable() | Unpublishable():
            return OutputFailed
    return CacheRefused
