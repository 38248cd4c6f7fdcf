"""Access keys that a server accepts: a file of AWS's credentials format, or two variables."""

from __future__ import annotations

import configparser
import os
import re
import stat
from collections.abc import MutableMapping
from pathlib import Path

from packager.addons.server.sigv4 import AccessKey
from packager.core.errors import NotFound, UsageError
from packager.core.files.atomic import read_regular

ID_VARIABLE = "PACKAGER_SERVE_ACCESS_KEY_ID"
SECRET_VARIABLE = "PACKAGER_SERVE_SECRET_ACCESS_KEY"
MAX_BYTES = 1024 * 1024
MIN_SECRET = 16  # characters

_ID = re.compile(r"[A-Za-z0-9_]{4,128}")
_FORM = "a section for each user, such as [alice], with aws_access_key_id and aws_secret_access_key"


def keys_invalid(reason: str, *, hint: str = f"write {_FORM}") -> UsageError:
    """Return an error: the access keys cannot be used.

    The message omits the file's content, which is secret.
    """
    return UsageError(reason, hint=hint, code="KeysInvalid")


def take_keys(path: Path | None, environment: MutableMapping[str, str]) -> dict[str, AccessKey]:
    """Return the keys of a file and of the environment, by id; both may be left out.

    They are taken out of the environment, which jobs and the tools that they run inherit.
    """
    found = read_keys(path) if path else {}
    key_id, secret = environment.pop(ID_VARIABLE, ""), environment.pop(SECRET_VARIABLE, "")
    if bool(key_id) != bool(secret):
        raise keys_invalid(
            f"only one of {ID_VARIABLE} and {SECRET_VARIABLE} is set", hint="set both, or neither"
        )
    if key_id:
        _add(found, _key("environment", key_id, secret, "the environment"))
    return found


def read_keys(path: Path) -> dict[str, AccessKey]:
    """Read a file of keys that only its owner may read; raises `UsageError`, `NotFound`."""
    shown = repr(str(path))
    try:
        status = path.stat()
        data = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        raise NotFound(f"there is no file of keys {shown}", hint=f"write one: {_FORM}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise keys_invalid(
            f"cannot read the keys in {shown}: {reason}", hint="let the server's user read it"
        ) from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise keys_invalid(
            f"others may read the keys in {shown}: its mode is {stat.S_IMODE(status.st_mode):04o}",
            hint=f"let nobody else read it: chmod 600 {path}",
        )
    if status.st_uid not in (0, os.geteuid()):
        raise keys_invalid(
            f"the file of keys {shown} belongs to another user",
            hint="copy it to a file of the server's own user",
        )
    if len(data) > MAX_BYTES:
        raise keys_invalid(f"the file of keys {shown} has more than {MAX_BYTES} bytes")
    parser = configparser.RawConfigParser(default_section="", interpolation=None)
    try:
        parser.read_string(data.decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        raise keys_invalid(
            f"the keys in {shown} are not in the format of AWS's credentials",
            hint=f"write {_FORM}",
        ) from None
    found: dict[str, AccessKey] = {}
    for name in parser.sections():
        fields = dict(parser.items(name))
        where = f"[{name}] of {shown}"
        wanted = {"aws_access_key_id", "aws_secret_access_key"}
        if odd := sorted(fields.keys() - wanted):
            raise keys_invalid(f"unknown setting {odd[0]!r} in {where}")
        if fields.keys() != wanted:
            raise keys_invalid(f"{where} lacks {min(wanted - fields.keys())!r}")
        _add(
            found,
            _key(name, fields["aws_access_key_id"], fields["aws_secret_access_key"], where),
        )
    if not found:
        raise keys_invalid(f"the file {shown} has no keys")
    return found


def _key(name: str, key_id: str, secret: str, where: str) -> AccessKey:
    if not _ID.fullmatch(key_id):
        raise keys_invalid(
            f"the access key id in {where} is not one",
            hint="give it 4 to 128 letters, digits and underscores",
        )
    if len(secret) < MIN_SECRET or not secret.isascii() or not secret.isprintable():
        raise keys_invalid(
            f"the secret in {where} is too short",
            hint=f"give it {MIN_SECRET} characters or more: `openssl rand -hex 20` makes one",
        )
    return AccessKey(key_id, secret, name)


def _add(found: dict[str, AccessKey], key: AccessKey) -> None:
    if key.id in found:
        raise keys_invalid(
            f"the access key id {key.id!r} is there twice", hint="give each user a key"
        )
    found[key.id] = key
