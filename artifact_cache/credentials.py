"""Recognises credentials by name, so that no document that is shared holds one.

Names decide, never values: a password looks like any other text, and its hash can be
guessed.  A value is looked into only where it has names of its own (JSON) or a place for
a password (a URL).  Every check takes time in proportion to the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise

# Anywhere in a name: `ssl-keyfile-password`, `AWS_SECRET_ACCESS_KEY`, `clientSecret`.
_WORDS = frozenset(
    {"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets"}
    | {"credential", "credentials", "authorization", "authtoken", "apikey", "apikeys"}
)
# Only as its last word: `hf-token`, but not `long-prefill-token-threshold`.
_LAST = frozenset({"token", "auth", "bearer", "cookie", "dsn"})
# Of two words, `api-key`, with `AWS_ACCESS_KEY_ID` and `api-key-file`.
_OF_KEYS = frozenset(
    {"access", "account", "api", "auth", "encryption", "hash", "hashing", "private", "secret"}
    | {"shared", "signing", "ssh", "ssl", "tls", "watermark"}
)
_KEYS = frozenset({"key", "keys", "keyfile"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[^a-z0-9]+")
_LONGEST_JSON = 1 << 20


def is_credential(name: str) -> bool:
    """Return whether a setting of this name would hold a password, a token or a secret key."""
    words = [word for word in _BETWEEN.split(_CAMEL.sub("-", name).lower()) if word]
    if not words:
        return False
    return (
        not _WORDS.isdisjoint(words)
        or words[-1] in _LAST
        or any(first in _OF_KEYS and second in _KEYS for first, second in pairwise(words))
    )


def holds_credential(name: str, value: str) -> bool:
    """Return whether a setting is a credential, or its value names one or has a URL with one."""
    return is_credential(name) or _has_user(value) or _names_credential(value)


def _has_user(value: str) -> bool:
    """Find `scheme://user:password@host`: what stands before the `@` is nobody else's business."""
    for rest in value.split("://")[1:]:
        authority = re.split(r"[/?#\s\"',;]", rest, maxsplit=1)[0]
        if "@" in authority:
            return True
    return False


def _names_credential(value: str) -> bool:
    if value.lstrip()[:1] not in ("{", "[") or len(value) > _LONGEST_JSON:
        return False
    try:
        waiting = [json.loads(value)]
    except (ValueError, RecursionError):
        return False
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Mapping):
            if any(is_credential(name) for name in inner):
                return True
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return False
