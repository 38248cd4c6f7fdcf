"""Turns what huggingface-hub raises into errors of ours, with a next step.

Its messages are never passed on: they hold URLs and, with proxies, credentials.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from packager.errors import AccessDenied, NotFound, OutputFailed, PackagerError, Unavailable

_FULL = {errno.ENOSPC, errno.EDQUOT}
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def explained(name: str, revision: str, endpoint: str) -> Iterator[None]:
    """Explain every failure of the hub's client inside the block."""
    try:
        yield
    except PackagerError:
        raise
    except Exception as error:
        explanation = explain(error, name, revision, endpoint)
        if explanation is None:
            raise
        raise explanation from error


def explain(error: BaseException, name: str, revision: str, endpoint: str) -> PackagerError | None:
    """Find the explanation; None for what is not the hub's or the disk's doing."""
    from huggingface_hub import errors

    host = urlsplit(endpoint).hostname or "the hub"
    if isinstance(error, errors.GatedRepoError):
        return AccessDenied(
            f"{name!r} is gated: {host} wants its conditions accepted",
            hint=f"accept them at {_page(endpoint, name)}, then set HF_TOKEN to a token that "
            "may read the repository",
        )
    if isinstance(error, errors.DisabledRepoError):
        return NotFound(
            f"{name!r} was disabled on {host}", hint=f"{_page(endpoint, name)} may say why"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return NotFound(
            f"{host} has no model {name!r}, or does not show it to you",
            hint="check the spelling; a private repository needs HF_TOKEN",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return NotFound(
            f"{name!r} has no revision {revision!r}",
            hint=f"branches and tags are listed at {_page(endpoint, name)}/tree/main",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return NotFound(
            f"files of {name!r} are not in the hub cache, and HF_HUB_OFFLINE forbids to ask",
            hint=f"download them where the hub can be reached: `hf download {name}`",
        )
    if isinstance(error, errors.HfHubHTTPError):
        return _by_status(error.response.status_code, name, host)
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        return explain(error.__cause__, name, revision, endpoint)
    if isinstance(error, OSError) and error.errno in _FULL:
        return OutputFailed(
            "the disk of the hub cache is full",
            hint="make room, or set HF_HOME to a directory on a larger disk",
        )
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return OutputFailed(
            "the hub cache cannot be written",
            hint="set HF_HOME to a directory that you may write to",
        )
    if isinstance(error, (OSError, _transport_error())):
        return Unavailable(
            f"the download of {name!r} from {host} failed",
            hint="run again: finished files are kept; check HF_ENDPOINT and the network",
        )
    return None


def _by_status(status: int, name: str, host: str) -> PackagerError:
    if status in (401, 403):
        return AccessDenied(
            f"{host} refuses access to {name!r} ({status})",
            hint="set HF_TOKEN to a valid token that may read the repository",
        )
    if status == 404:
        return NotFound(
            f"{host} lists a file of {name!r} that it does not have",
            hint="run again; if it stays so, use another revision",
        )
    if status == 429:
        return Unavailable(
            f"{host} says: too many requests",
            hint="wait some minutes; with HF_TOKEN more is allowed",
        )
    return Unavailable(
        f"{host} answers {status} for {name!r}", hint="run again later: finished files are kept"
    )


def _transport_error() -> type[Exception]:
    """The base of the HTTP client's errors; which client depends on huggingface-hub's version."""
    from huggingface_hub import errors

    return next(
        base
        for base in errors.HfHubHTTPError.__bases__
        if issubclass(base, Exception) and not issubclass(base, OSError)
    )


def _page(endpoint: str, name: str) -> str:
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{name}"
