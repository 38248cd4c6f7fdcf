"""Turns what huggingface-hub raises into errors of ours, with the reason and a next step.

Its messages are never passed on: they hold URLs and, with proxies, credentials.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from artifact_cache.waits import retry_after_s
from packager.core.errors import (
    AccessDenied,
    NotFound,
    OutputFailed,
    PackagerError,
    Unavailable,
    UsageError,
)
from packager.core.remote.unreachable import unreachable

HUB = "huggingface.co"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}
_WINDOW = re.compile(r";\s*t=(\d{1,6})")  # of the `RateLimit` header: seconds until it is over
_CONTENT = re.compile(r"[a-z0-9.-]{1,60}\.(hf|huggingface)\.co", re.ASCII)  # its content network
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRequest:
    """A request to a hub, as far as messages describe it."""

    name: str
    revision: str
    endpoint: str
    token: str | bool | None = None  # None: the environment's
    keeps_files: bool = False  # another try takes over what has been downloaded
    near: Callable[[str], str] = lambda _: ""  # a published name like one that is not there

    @property
    def host(self) -> str:
        """Return the hub's host."""
        return urlsplit(self.endpoint).hostname or "the hub"

    @property
    def address(self) -> str:
        """Return the hub's address without who logs in."""
        parts = urlsplit(self.endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def page(self) -> str:
        """Return the address of the page about the model."""
        return f"{self.address}/{self.name}"

    @property
    def token_words(self) -> str:
        """Return where the token that is sent comes from; empty when none is sent."""
        if isinstance(self.token, str):
            return "the token"
        if self.token is False:
            return ""
        named = next((name for name in _TOKENS if os.environ.get(name)), "")
        if named:
            return f"the token in {named}"
        from huggingface_hub import get_token

        return "the token of `hf auth login`" if get_token() else ""


@contextmanager
def explained(asked: HubRequest) -> Iterator[None]:
    """Explain every failure of the hub's client inside the block."""
    _check_endpoint(asked)
    try:
        yield
    except PackagerError:
        raise
    except Exception as error:
        explanation = explain(error, asked)
        if explanation is None:
            raise
        raise explanation from error


def explain(error: BaseException, asked: HubRequest) -> PackagerError | None:
    """Find the explanation; None for what is not the hub's or the disk's doing."""
    from huggingface_hub import errors

    name = asked.name
    if isinstance(error, errors.GatedRepoError):
        return _gated(asked)
    if isinstance(error, errors.DisabledRepoError):
        return NotFound(f"{name!r} was disabled on {asked.host}", hint=f"{asked.page} may say why")
    if isinstance(error, errors.RepositoryNotFoundError):
        return _no_model(asked)
    if isinstance(error, errors.RevisionNotFoundError):
        return NotFound(
            f"{name!r} has no revision {asked.revision!r}",
            hint=f"branches and tags are listed at {asked.page}/tree/main",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return not_in_cache(asked)
    if isinstance(error, errors.HfHubHTTPError):
        headers = error.response.headers
        wait_s = retry_after_s(headers.get("Retry-After")) or _window_s(headers.get("RateLimit"))
        return _by_status(error.response.status_code, wait_s, asked)
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        return explain(error.__cause__, asked)
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
        return _unreached(error, asked)
    return None


def not_in_cache(asked: HubRequest) -> NotFound:
    """Return the error for a model that only the hub has, while offline."""
    return NotFound(
        f"{asked.name!r} at {asked.revision!r} is not in the hub cache, and HF_HUB_OFFLINE "
        "forbids to ask",
        hint="unset HF_HUB_OFFLINE, or download it where the hub can be reached: "
        f"`hf download {asked.name}`",
    )


def _check_endpoint(asked: HubRequest) -> None:
    try:
        parts = urlsplit(asked.endpoint)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # brackets that do not close
        is_address = False
    if not is_address:
        raise UsageError(
            f"HF_ENDPOINT {asked.endpoint!r} is not the address of a hub",
            hint=f"write it as https://HOST, or unset it for https://{HUB}",
        )


def _gated(asked: HubRequest) -> PackagerError:
    token = asked.token_words
    if token:
        hint = f"accept them at {asked.page} with the account of {token}"
    else:
        hint = f"accept them at {asked.page}, then set HF_TOKEN to a token of that account"
    return AccessDenied(
        f"{asked.name!r} is gated: {asked.host} wants its conditions accepted", hint=hint
    )


def _no_model(asked: HubRequest) -> PackagerError:
    """Return the error for a model that is not there or not shown: hubs answer both alike."""
    kind, _, bare = asked.name.rpartition("datasets/")
    kind = "dataset" if asked.name.startswith("datasets/") else "model"
    near = asked.near(asked.name)
    guess = f"did you mean {near!r}? " if near else ""
    search = f"{asked.address}/{kind}s?search={quote(bare.rpartition('/')[2])}"
    token = asked.token_words
    if token:
        message = f"{asked.host} has no {kind} {bare!r}, or does not show it to {token}"
        hint = f"{search} lists like names; what is private needs a token of its owner in HF_TOKEN"
    else:
        message = f"{asked.host} has no {kind} {bare!r}, or does not show it without a token"
        hint = f"{search} lists like names; what is private needs HF_TOKEN"
    return NotFound(message, hint=guess + hint)


def _by_status(status: int, wait_s: float, asked: HubRequest) -> PackagerError:
    if status in (401, 403):
        return _refused(status, asked)
    if status == 404:
        return NotFound(
            f"{asked.host} lists a file of {asked.name!r} that it does not have",
            hint="run again; if it stays so, use another revision",
        )
    if status == 429:
        return _too_many(wait_s, asked)
    wait = f"in {wait_s:.0f} s" if wait_s else "in some minutes"
    outages = "; https://status.huggingface.co tells of outages" if asked.host == HUB else ""
    return Unavailable(
        f"{asked.host} answers {status} for {asked.name!r}: the trouble is the hub's",
        hint=_again(f"run again {wait}", asked) + outages,
    )


def _refused(status: int, asked: HubRequest) -> PackagerError:
    token = asked.token_words
    settings = f"{asked.address}/settings/tokens"
    if not token:
        return AccessDenied(
            f"{asked.host} refuses access to {asked.name!r} ({status}) without a token",
            hint=f"set HF_TOKEN to a token that may read it; {settings} makes one",
        )
    if status == 401:
        return AccessDenied(
            f"{asked.host} refuses access to {asked.name!r} (401): {token} is not valid",
            hint=f"make another at {settings} and set HF_TOKEN; a public model needs none: "
            "unset it, or `hf auth logout`",
        )
    return AccessDenied(
        f"{asked.host} refuses access to {asked.name!r} (403): {token} may not read it",
        hint=f"let it read the repository at {settings}, or set HF_TOKEN to one that may",
    )


def _too_many(wait_s: float, asked: HubRequest) -> PackagerError:
    asks = f", and asks to wait {wait_s:.0f} s" if wait_s else ""
    wait = f"wait {wait_s:.0f} s" if wait_s else "wait some minutes"
    more = "" if asked.token_words else "; with HF_TOKEN more is allowed"
    failure = Unavailable(
        f"{asked.host} answers 429 for {asked.name!r}: too many requests{asks}",
        hint=_again(f"{wait} and run again", asked) + more,
    )
    failure.retry_after_s = wait_s
    return failure


def _unreached(error: BaseException, asked: HubRequest) -> PackagerError:
    url = _asked_url(error) or asked.endpoint
    host = urlsplit(url).hostname or ""
    is_own = host == asked.host
    found = unreachable(error, url, "HF_ENDPOINT" if is_own and host != HUB else "")
    where, hint = found.where, found.hint
    if not is_own and _CONTENT.fullmatch(host) is None:
        # The address is whatever the hub's answer said, which may be what we sent it.
        where, hint = f"a server that {asked.host} redirects to", "check HF_ENDPOINT and the proxy"
    if asked.keeps_files:
        hint = f"{hint}; then run again: finished files are kept"
    return Unavailable(f"cannot reach {where} for {asked.name!r}: {found.reason}", hint=hint)


def _asked_url(error: BaseException) -> str:
    """Return the URL that failed: a hub redirects to other hosts; "" if unknown."""
    try:
        return str(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return ""


def _again(words: str, asked: HubRequest) -> str:
    return f"{words}: finished files are kept" if asked.keeps_files else words


def _window_s(header: str | None) -> float:
    """Read how long a limit still holds; nonsense counts as not at all."""
    found = _WINDOW.search(header or "")
    return float(found[1]) if found else 0.0


def _transport_error() -> type[Exception]:
    """The base of the HTTP client's errors; which client depends on huggingface-hub's version."""
    from huggingface_hub import errors

    return next(
        base
        for base in errors.HfHubHTTPError.__bases__
        if issubclass(base, Exception) and not issubclass(base, OSError)
    )
