"""Users and groups of an image, by its own `/etc/passwd` and `/etc/group`: pure.

A container's user is a name or a number, and a group behind a colon.  Engines look names up in the
image (opencontainers/runc libcontainer/user, moby/sys user: `GetExecUser`); the groups of a user
without a stated group are those that `/etc/group` lists it in, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_LARGEST = 2**31 - 1  # as engines take


class NoSuchUser(ValueError):
    """A name that the image does not have: no container would start."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The numbers that a container's first process has."""

    uid: int
    groups: frozenset[int]


def find_identity(user: str, passwd: bytes | None, group: bytes | None) -> Identity | None:
    """Return who `USER[:GROUP]` is; None where a file that says so is not known.

    A file that the image lacks is `b""`. Raises `NoSuchUser`.
    """
    name, _, group_name = user.partition(":")
    uid, gid = _number(name) if name else 0, 0
    if passwd is not None:
        row = next((one for one in _rows(passwd) if _is(one, name, uid)), None)
        if row is not None:
            name, uid, gid = row[0], _number(row[2]), _number(row[3]) or 0
    if uid is None:
        if passwd is None:
            return None
        raise NoSuchUser(f"its /etc/passwd has no user {name!r}")
    if passwd is None and not group_name:
        return None
    if not group_name:
        if group is None:
            return None
        listed = (_number(one[2]) for one in _rows(group) if name in one[3].split(","))
        return Identity(uid, frozenset({gid, *(one for one in listed if one is not None)}))
    stated = _number(group_name)
    row = next((one for one in _rows(group or b"") if _is(one, group_name, stated)), None)
    found = _number(row[2]) if row is not None else stated
    if found is None:
        if group is None:
            return None
        raise NoSuchUser(f"its /etc/group has no group {group_name!r}")
    return Identity(uid, frozenset({found}))


def _rows(data: bytes) -> Iterator[list[str]]:
    """Yield lines of at least four fields, as both files have."""
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.strip().split(":")
        if len(fields) > 3 and not line.startswith("#"):
            yield fields


def _is(row: list[str], name: str, number: int | None) -> bool:
    return row[0] == name or (number is not None and _number(row[2]) == number)


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if is_number and int(text) <= _LARGEST else None
