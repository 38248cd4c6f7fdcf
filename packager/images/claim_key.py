"""The key that authenticates claims: from the environment or a file readable by its owner only.

    PACKAGER_CLAIM_KEY         the key itself, for CI; `off` neither believes nor writes claims
    PACKAGER_CLAIM_KEY_FILE    a file that holds it
    ~/.config/packager/claim-key   made when a build first has something to claim

A key that others can read proves nothing, so it is refused.  No message contains a key.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packager.core.errors import NotFound, UsageError
from packager.core.files.atomic import explain_disk_errors, sync_directory, user_dir
from packager.core.files.user_files import expand_home
from packager.images.claims import KEY_BYTES, ClaimKey, parse_key

VARIABLE, FILE_VARIABLE, OFF = "PACKAGER_CLAIM_KEY", "PACKAGER_CLAIM_KEY_FILE", "off"
_LONGEST = 1024


def unusable_claim_key(place: str, reason: str, *, hint: str = "") -> UsageError:
    """Return an error: a claim key that must not, or cannot, be used."""
    return UsageError(
        f"the claim key in {place!r} cannot be used: {reason}", hint=hint, code="UnusableClaimKey"
    )


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Location of the claim key. `path` is None when a variable holds the key itself."""

    name: str
    path: Path | None
    is_own: bool = False  # ours to make and replace


def key_place(environment: Mapping[str, str]) -> KeyPlace:
    """Return where the key is looked for; raise when two places are named."""
    given, named = environment.get(VARIABLE, ""), environment.get(FILE_VARIABLE, "")
    if given and named:
        raise UsageError(
            f"{VARIABLE} and {FILE_VARIABLE} are both set", hint=f"unset {FILE_VARIABLE}"
        )
    if given:
        return KeyPlace(VARIABLE, None)
    if named:
        path = expand_home(named).absolute()
        return KeyPlace(str(path), path)
    own = user_dir("config", environment) / "packager" / "claim-key"
    return KeyPlace(str(own), own, is_own=True)


def load_key(environment: Mapping[str, str]) -> ClaimKey | None:
    """Return the key; None where there is none yet, or claims are switched off."""
    place = key_place(environment)
    if place.path is not None:
        return _read(place, place.path)
    given = environment[VARIABLE]
    return None if given == OFF else _parsed(VARIABLE, given)


def make_key(environment: Mapping[str, str]) -> ClaimKey:
    """Return the key, made where there is none; of two builds that make it, both use one."""
    place = key_place(environment)
    found = load_key(environment)
    if found is not None:
        return found
    if place.path is None or not place.is_own:
        raise unusable_claim_key(place.name, "claims are switched off", hint=f"unset {VARIABLE}")
    install_key(place.path, ClaimKey(secrets.token_bytes(KEY_BYTES)))
    made = _read(place, place.path)
    if made is None:
        raise unusable_claim_key(place.name, "it was removed again")
    return made


def store_claim_key(
    environment: Mapping[str, str], text: str, *, replace: bool = False
) -> ClaimKey:
    """Store a team's key as the user's claim key; raises where another key is stored."""
    place = key_place(environment)
    if place.path is None or not place.is_own:
        raise UsageError(
            f"the claim key is given by {VARIABLE if place.path is None else FILE_VARIABLE}",
            hint="unset it to keep a key of your own",
        )
    taken = _parsed("the given text", text)
    with explain_disk_errors(place.path):
        if install_key(place.path, taken, replace=replace) or load_key(environment) == taken:
            return taken
    raise UsageError(
        f"there is another claim key in {place.name!r}",
        hint="--replace gives it up; claims that it proved are then no longer believed here",
    )


def install_key(path: Path, key: ClaimKey, *, replace: bool = False) -> bool:
    """Write `key` for its owner alone, whole or not at all; return False when one was there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="ascii") as file:
            file.write(f"{key.spelled()}\n")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename it never takes another key's place
        sync_directory(path.parent)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            draft.unlink()
    return True


class ClaimKeys:
    """The key of one run, looked up once. Without a place to store a key, no claims are written."""

    def __init__(self, environment: Mapping[str, str], on_warning: Callable[[str], None]) -> None:
        self._environment = environment
        self._warn = on_warning
        self._lock = threading.Lock()
        self._key: ClaimKey | None = None
        self._loaded = False

    @property
    def is_off(self) -> bool:
        """Whether claims are neither to be believed nor written."""
        return self._environment.get(VARIABLE) == OFF

    def find(self) -> ClaimKey | None:
        """Return the key, if there is one. Raises for one that must not be used."""
        with self._lock:
            if not self._loaded:
                self._key = load_key(self._environment)
                self._loaded = True
            return self._key

    def need(self) -> ClaimKey | None:
        """Return the key to write claims with, made on first need; None where that cannot be."""
        if self.is_off or self.find() is not None:
            return self._key
        with self._lock:
            try:
                self._key = make_key(self._environment)
            except OSError as error:
                place = key_place(self._environment).name
                reason = (error.strerror or str(error)).lower()
                self._warn(
                    f"no claim key can be kept in {place!r} ({reason}): other machines will read "
                    f"these weights; set {VARIABLE}, or to {OFF} to do without"
                )
            return self._key


def _read(place: KeyPlace, path: Path) -> ClaimKey | None:
    """Read a key file. The opened file is checked, so that it cannot change in between."""
    # A secret that a cluster mounts is a link; our own place never is one.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if place.is_own else 0)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError) as error:
        if place.is_own:
            return None
        raise NotFound(
            f"no claim key found in {place.name!r}", hint=f"unset {FILE_VARIABLE}"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise unusable_claim_key(place.name, reason) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise unusable_claim_key(place.name, "it is not a regular file")
        owners = (os.geteuid(),) if place.is_own else (os.geteuid(), 0)
        if status.st_uid not in owners:
            raise unusable_claim_key(
                place.name, "it belongs to another user", hint="make a key of your own"
            )
        if status.st_mode & 0o077:
            raise unusable_claim_key(
                place.name,
                "others may read or write it",
                hint="if no one has read it: chmod 600 that file; else delete it, and a new key "
                "is made",
            )
        try:
            data = file.read(_LONGEST + 1)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise unusable_claim_key(place.name, reason) from error
    if len(data) > _LONGEST:
        raise unusable_claim_key(place.name, f"it is longer than {_LONGEST} bytes")
    return _parsed(place.name, data.decode("ascii", errors="replace"))


def _parsed(place: str, text: str) -> ClaimKey:
    try:
        return parse_key(text)
    except ValueError as error:
        raise unusable_claim_key(
            place, str(error), hint="`packager claims export` prints a key where there is one"
        ) from None
