"""Credentials that `docker login` and `podman login` stored on this machine, or from AWS.

The first file that knows the repository wins: REGISTRY_AUTH_FILE, DOCKER_AUTH_CONFIG, the docker
configuration (DOCKER_CONFIG), then podman's files, then docker's old one.  In a file the longest
name wins: `HOST/TEAM/MODEL` before `HOST/TEAM` before `HOST`, as containers/image has it
(pkg/docker/config); Docker itself writes hosts alone.  Missing or invalid entries of a file are
skipped with a warning, as its own readers do.  Secrets are in no repr.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from packager.core.documents import MAX_BYTES, NotStrict, parse_object
from packager.core.documents import field as field_of
from packager.core.errors import UsageError
from packager.core.events import ignore
from packager.core.files.atomic import home_dir, read_regular
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
_IN_VARIABLE = "DOCKER_AUTH_CONFIG"  # of Docker's command and GitLab's runners: a file's text


class HelperMissing(CredentialHelperFailed):
    """A file names a credential helper that is not installed: it came from another machine."""


class BadCredentialsFile(UsageError):
    """A configuration file of docker or podman cannot be read."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"cannot read credentials from {place}: {reason}",
            hint="repair the file, or log in again",
        )


Ask: TypeAlias = Callable[[], Credentials | None]


class Answers:
    """Answers of helpers and AWS: each is called once per host, whatever the repository.

    A second request for a repository means that its answer was refused or expires: then they are
    called again.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Credentials | None, set[str]]] = {}

    def get(self, whom: str, host: str, name: str, ask: Ask) -> Credentials | None:
        """Return the answer for `name`; of `whom`, who knows it for all of `host`."""
        known = self._known.get((whom, host))
        if known is None or name in known[1] or (known[0] and known[0].renew_at <= time.time()):
            known = self._known[whom, host] = (ask(), set())
        known[1].add(name)
        return known[0]


def find_credentials(
    name: str,
    environment: Mapping[str, str] | None = None,
    *,
    on_warning: Callable[[str], None] = ignore,
    answers: Answers | None = None,
) -> Credentials | None:
    """Return credentials for `HOST` or `HOST/REPOSITORY`: from files, for ECR from AWS.

    `answers` caches those already fetched.  Raises `BadCredentialsFile`,
    `CredentialHelperFailed` and what AWS's do.
    """
    known = os.environ if environment is None else environment
    answers = answers or Answers()
    for place, document in _documents(known):
        found = _from_document(place, document, name, on_warning, answers)
        if found:
            return found
    host = name.partition("/")[0]
    return answers.get("AWS", host, name, lambda: ecr_credentials(host)) if is_ecr(host) else None


def listed_logins(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that files hold credentials or helpers for, without calling a helper.

    Raises `BadCredentialsFile`.
    """
    for _, document in _documents(environment):
        for table in ("auths", "credHelpers"):
            listed = document.get(table)
            yield from listed if isinstance(listed, dict) else ()
        if isinstance(store := document.get("credsStore"), str):
            yield f"all through docker-credential-{store}"


def _documents(environment: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what each place holds, the first first, and how messages call it."""
    if explicit := environment.get("REGISTRY_AUTH_FILE"):
        yield repr(explicit), _read(Path(explicit)) or {}
    if text := environment.get(_IN_VARIABLE):
        try:
            yield _IN_VARIABLE, parse_object(text.encode())
        except NotStrict as error:
            raise BadCredentialsFile(_IN_VARIABLE, str(error)) from None
    for path in _files(environment):
        if document := _read(path):
            is_old = path.name == ".dockercfg"  # only a table of hosts
            yield repr(str(path)), {"auths": document} if is_old else document


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environment.get("HOME") or home_dir())
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    runtime = environment.get("XDG_RUNTIME_DIR")
    state = Path(runtime or f"/run/containers/{os.getuid()}")
    yield state / ("containers/auth.json" if runtime else "auth.json")
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"
    yield home / ".dockercfg"


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        return parse_object(read_regular(path, MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise BadCredentialsFile(repr(str(path)), reason) from error
    except NotStrict as error:
        # `from None`: the reason names places and keys, the cause would carry the text.
        raise BadCredentialsFile(repr(str(path)), str(error)) from None


def _from_document(
    place: str,
    document: Mapping[str, Any],
    name: str,
    warn: Callable[[str], None],
    answers: Answers,
) -> Credentials | None:
    key, helper = _lookup(document.get("credHelpers"), name)
    if not helper:
        key, helper = name.partition("/")[0], document.get("credsStore")
    if helper:
        if not isinstance(helper, str):
            raise BadCredentialsFile(place, "the name of a credential helper is not text")
        try:
            found = answers.get(helper, key, name, partial(_from_helper, helper, key))
        except HelperMissing as error:
            warn(f"{error.message}; {place} names it: {error.hint}")
        else:
            if found:
                return found
    # Docker leaves an empty entry where a helper keeps the password.
    for key in _keys(name):
        entry = _find(document.get("auths"), key)
        if isinstance(entry, dict) and (found := _from_entry(place, key, entry, warn)):
            return found
    return None


def _lookup(table: object, name: str) -> tuple[str, Any]:
    """Return the longest name of a table that covers a repository, and what it holds."""
    found = ((key, _find(table, key)) for key in _keys(name))
    return next(((key, value) for key, value in found if value), ("", None))


def _keys(name: str) -> Iterator[str]:
    """Yield a name and the names above it: `h/a/b`, `h/a`, `h`."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _find(table: object, name: str) -> Any:
    """Find a host, or a name below one, under any of the spellings that tools have used for it."""
    if not isinstance(table, dict):
        return None
    if name in table:
        return table[name]
    host, slash, below = name.partition("/")
    wanted = _HUB_NAMES if host == DOCKER_HUB else (host,)
    paths = (f"/{below}",) if slash else ("", "/v1", "/v2")
    for key, value in table.items():
        try:
            bare = urlsplit(key if "://" in key else f"//{key}")
        except ValueError:  # `[::1`
            continue
        if bare.netloc in wanted and bare.path.rstrip("/") in paths:
            return value
    return None


def _from_entry(
    place: str, key: str, entry: Mapping[str, Any], warn: Callable[[str], None]
) -> Credentials | None:
    names = ("identitytoken", "registrytoken", "username", "password", "auth")
    if not all(isinstance(entry.get(name), str | None) for name in names):
        raise BadCredentialsFile(place, "an entry of it holds something else than text")
    token, bearer, user, password, packed = (entry.get(name) or "" for name in names)
    if packed:
        try:
            decoded = base64.b64decode(packed, validate=True).decode()
        except (binascii.Error, ValueError):
            # `from None`: the cause would carry the secret's bytes.
            raise BadCredentialsFile(place, "an entry's `auth` is not base64") from None
        user, colon, password = decoded.rstrip("\0").partition(":")
        if not colon:
            warn(f"the entry {key!r} of {place} is passed over: its `auth` is not USER:PASSWORD")
            user = ""
    if not (token or bearer or user):
        return None
    return Credentials(user=user, password=password, identity_token=token, registry_token=bearer)


class _TooLong(Exception):
    """A helper writes more than the limit."""


def _from_helper(name: str, key: str) -> Credentials | None:
    """Call `docker-credential-NAME get`, as docker does; return None for an unknown name.

    Raises `HelperMissing` if there is no such program.
    """
    helper = f"docker-credential-{name}"
    server = _HUB_SERVER if key == DOCKER_HUB else key
    if not _HELPER_NAME.fullmatch(name):
        raise CredentialHelperFailed(helper, server, "it has no valid name")
    if shutil.which(helper) is None:
        raise HelperMissing(helper, server, "it is not installed")
    try:
        status, out, err = _run_helper([helper, "get"], server.encode())
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
