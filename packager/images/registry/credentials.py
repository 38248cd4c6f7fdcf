"""Credentials that `docker login` and `podman login` have left on this machine, or AWS gives.

The first file that knows the host wins: REGISTRY_AUTH_FILE, the docker
configuration (DOCKER_CONFIG), then podman's files.  Secrets are in no repr.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packager.core.documents import MAX_BYTES, NotStrict, parse_object
from packager.core.documents import field as field_of
from packager.errors import UsageError
from packager.files.atomic import home_dir, read_regular
from packager.images.registry.credential import Credentials
from packager.images.registry.ecr import ecr_credentials, is_ecr
from packager.images.registry.failures import CredentialHelperFailed
from packager.images.registry.reference import DOCKER_HUB

_HUB_SERVER = "https://index.docker.io/v1/"
_HUB_NAMES = ("index.docker.io", "docker.io", "registry-1.docker.io")
_HELPER_NAME = re.compile(r"[A-Za-z0-9._-]+")
_HELPER_TIMEOUT_S = 30.0
_LONGEST_ANSWER = 1024 * 1024  # of a helper: tokens have a few KB
_IDENTITY_TOKEN_USER = "<token>"


class BadCredentialsFile(UsageError):
    """A configuration file of docker or podman cannot be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"cannot read credentials from {str(path)!r}: {reason}",
            hint="repair the file, or log in again",
        )


def find_credentials(host: str, environment: Mapping[str, str] | None = None) -> Credentials | None:
    """Return credentials for a host: from Docker's and Podman's files, for ECR from AWS."""
    for path in _files(os.environ if environment is None else environment):
        found = _from_file(path, host)
        if found:
            return found
    return ecr_credentials(host) if is_ecr(host) else None


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environment.get("HOME") or home_dir())
    if explicit := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(explicit)
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"


def _from_file(path: Path, host: str) -> Credentials | None:
    try:
        document = parse_object(read_regular(path, MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadCredentialsFile(path, os.strerror(error.errno or 0).lower()) from error
    except NotStrict as error:
        # `from None`: the reason names places and keys, the cause would carry the text.
        raise BadCredentialsFile(path, str(error)) from None
    helper = _lookup(document.get("credHelpers"), host) or document.get("credsStore")
    if helper:
        if not isinstance(helper, str):
            raise BadCredentialsFile(path, "the name of a credential helper is not text")
        found = _from_helper(helper, host)
        if found:
            return found
    entry = _lookup(document.get("auths"), host)
    return _from_entry(path, entry) if isinstance(entry, dict) else None


def _lookup(table: object, host: str) -> Any:
    """Find a host under any of the spellings that tools have used for it."""
    if not isinstance(table, dict):
        return None
    wanted = _HUB_NAMES if host == DOCKER_HUB else (host,)
    for key, value in table.items():
        try:
            bare = urlsplit(key if "://" in key else f"//{key}")
        except ValueError:  # `[::1`
            continue
        if bare.netloc in wanted and bare.path.rstrip("/") in ("", "/v1", "/v2"):
            return value
    return None


def _from_entry(path: Path, entry: Mapping[str, Any]) -> Credentials | None:
    names = ("identitytoken", "username", "password", "auth")
    if not all(isinstance(entry.get(name), str | None) for name in names):
        raise BadCredentialsFile(path, "an entry of it holds something else than text")
    token, user, password, packed = (entry.get(name) or "" for name in names)
    if packed:
        try:
            decoded = base64.b64decode(packed, validate=True).decode()
        except (binascii.Error, ValueError):
            # `from None`: the cause would carry the secret's bytes.
            raise BadCredentialsFile(path, "an entry's `auth` is not base64") from None
        user, _, password = decoded.rstrip("\0").partition(":")
    if not (token or user):
        return None
    return Credentials(user=user, password=password, identity_token=token)


class _TooLong(Exception):
    """A helper goes on writing."""


def _from_helper(name: str, host: str) -> Credentials | None:
    """Ask `docker-credential-NAME get`, as docker does; returns None for an unknown host."""
    helper = f"docker-credential-{name}"
    server = _HUB_SERVER if host == DOCKER_HUB else host
    if not _HELPER_NAME.fullmatch(name):
        raise CredentialHelperFailed(helper, server, "it has no valid name")
    try:
        status, out, err = _run_helper([helper, "get"], server.encode())
    except FileNotFoundError:
        raise CredentialHelperFailed(helper, server, "it is not installed") from None
    except _TooLong:
        reason = f"it wrote more than {_LONGEST_ANSWER} bytes"
        raise CredentialHelperFailed(helper, server, reason) from None
    except (OSError, subprocess.TimeoutExpired):
        raise CredentialHelperFailed(helper, server, "it did not run to its end") from None
    if status:
        if b"not found" in out + err:
            return None
        raise CredentialHelperFailed(helper, server, f"it ended with status {status}")
    try:
        answer = parse_object(out, max_bytes=_LONGEST_ANSWER)
        user, secret = field_of(answer, "Username", str), field_of(answer, "Secret", str)
    except NotStrict:
        # `from None`: the reason may quote what the helper has written.
        raise CredentialHelperFailed(helper, server, "it wrote no credentials") from None
    if user == _IDENTITY_TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(user=user, password=secret) if user else None


def _run_helper(command: Sequence[str], question: bytes) -> tuple[int, bytes, bytes]:
    """Run a helper; return its status and what it wrote to stdout and stderr.

    Raises `subprocess.TimeoutExpired`, OSError, and `_TooLong` for one that writes too much.
    """
    deadline = time.monotonic() + _HELPER_TIMEOUT_S
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        out, err = process.stdout.fileno(), process.stderr.fileno()
        written = {out: b"", err: b""}
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(question)
                process.stdin.close()
            with selectors.DefaultSelector() as streams:
                for stream in written:
                    streams.register(stream, selectors.EVENT_READ)
                while streams.get_map():
                    ready = streams.select(max(0.0, deadline - time.monotonic()))
                    if not ready:
                        raise subprocess.TimeoutExpired(command, _HELPER_TIMEOUT_S)
                    for key, _ in ready:
                        piece = os.read(key.fd, 65536)
                        written[key.fd] += piece
                        if not piece:
                            streams.unregister(key.fd)
                        if len(written[key.fd]) > _LONGEST_ANSWER:
                            raise _TooLong
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException:
            process.kill()
            raise
        return status, written[out], written[err]
