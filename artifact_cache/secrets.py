"""The secrets that this process sends: one list, asked wherever text leaves the process.

Who puts a credential into a request calls `remember_secret` or `remember_headers`; who writes a
line, a message, a page or a document calls `hide_secrets`; `printable.quote_answer` repeats what a
server said.  A server may answer with all that it was sent, in a spelling of its own: a secret is
also looked for in base64, percent-encoded, in hexadecimal, and as JSON and HTML write it.

A short secret, or a word, cannot be told from other text: with one of those nothing that a server
says is quoted.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress

from artifact_cache.credentials import is_credential

HIDDEN = "***"
_SHORTEST = 8  # characters
_SHORTEST_WORD = 16  # of letters of one case, or digits: `password` stands in many texts
_WORD = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_MOST = 1000  # that are kept: a token of an hour ago is worth nothing
_SCHEME = re.compile(r"(?i:basic|bearer|token|apikey)[ \t]+")
_SIGNED = "AWS4-"  # a signature of one request
_AROUND = "[A-Za-z0-9+/=_-]"  # of base64: the letters at both ends depend on what is beside
# Not the letters of an escape: `\n` and `\u00e9` of a JSON text stay whole.
_BEFORE = r"(?:(?<!\\)" + "".join(rf"(?<!\\u[0-9A-Fa-f]{{{n}}})" for n in range(4)) + f"{_AROUND})"


class Secrets:
    """Secrets, each with what finds its spellings. Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[str, ...], re.Pattern[str]]] = {}
        self.has_short = False  # one that cannot be told from other text
        self.longest = 0  # characters of a spelling

    def remember(self, secret: str) -> None:
        """Find a secret from now on."""
        if not secret or secret in self._known:
            return
        with self._lock:
            self.has_short = self.has_short or not _can_be_told(secret)
            spellings = dict(_spellings(secret))
            found = sorted(spellings.values(), key=len, reverse=True)
            self.longest = max(self.longest, *map(len, spellings))
            left = dict([*self._known.items()][1 - _MOST :])
            self._known = {**left, secret: (tuple(spellings), re.compile("|".join(found)))}

    def hide(self, text: str) -> str:
        """Return a text with `***` for every secret that can be told from it."""
        for secret, (cores, spellings) in self._known.items():
            if any(core in text for core in cores) and _can_be_told(secret):
                text = spellings.sub(HIDDEN, text)
        return text

    def are_in(self, text: str) -> bool:
        """Return whether a text has a spelling of any secret, also of a short one."""
        return any(core in text for cores, _ in self._known.values() for core in cores)


SECRETS = Secrets()


def remember_secret(secret: str) -> None:
    """Keep a secret, which is or will be sent, out of every text from now on."""
    SECRETS.remember(secret)


def remember_headers(headers: Mapping[str, str]) -> None:
    """Remember the credentials among the headers of a request, and the password in them."""
    for name, value in headers.items():
        if not is_credential(name) or value.startswith(_SIGNED):
            continue
        given = _SCHEME.sub("", value, count=1)
        SECRETS.remember(given)
        if value[:6].lower() == "basic ":
            _remember_basic(given)


def remember_variables(variables: Mapping[str, str]) -> None:
    """Remember the credentials among variables that a program elsewhere is started with."""
    for name, value in variables.items():
        if is_credential(name):
            SECRETS.remember(value)
        else:
            remember_user(value)


def remember_user(address: str) -> None:
    """Remember who logs in by an address: its password, or its name where that is all."""
    authority = address.partition("://")[2].partition("/")[0]
    if "@" in authority:
        from urllib.parse import unquote

        user, _, password = authority.rpartition("@")[0].partition(":")
        SECRETS.remember(unquote(password or user))


def hide_secrets(text: str) -> str:
    """Return a text with `***` for every secret that this process sent, however it is spelled."""
    return SECRETS.hide(text)


def repeats_secret(text: str) -> bool:
    """Return whether a short text of a server, such as a name or a code, has a secret in it."""
    return SECRETS.are_in(text)


def _can_be_told(secret: str) -> bool:
    least = _SHORTEST_WORD if _WORD.fullmatch(secret) else _SHORTEST
    return len(secret) >= least


def _remember_basic(encoded: str) -> None:
    import base64

    with suppress(ValueError):
        user, _, password = base64.b64decode(encoded).decode("utf-8", "replace").partition(":")
        SECRETS.remember(password or user)


def _spellings(secret: str) -> Iterator[tuple[str, str]]:
    """Yield how a secret may be written: what is surely there, and a pattern of all that is it."""
    import base64
    import html
    import json
    from urllib.parse import quote, quote_plus

    as_json = json.dumps(secret)[1:-1]
    as_html = html.escape(secret)
    percent = (quote(secret), quote(secret, safe=""), quote_plus(secret))
    numbered = as_html.replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    written = {secret, repr(secret)[1:-1], as_json, as_json.replace("/", "\\/"), *percent}
    written |= {json.dumps(secret, ensure_ascii=False)[1:-1], as_html, numbered}
    written |= {re.sub("%..", lambda found: found[0].lower(), one) for one in percent}
    data = secret.encode("utf-8", "surrogateescape")
    written |= {data.hex(), data.hex().upper()}
    for one in written:
        yield one, re.escape(one)
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        # Each letter holds six bits: those that hold bits of a neighbour are left out.
        core = encoded[(0, 2, 3)[before] : -4 if len(data) + before > 4 else None].rstrip("=")
        for one in {core, core.replace("+", "-").replace("/", "_")}:
            if core:
                yield one, f"{_BEFORE}{{0,3}}{re.escape(one)}{_AROUND}{{0,4}}"
