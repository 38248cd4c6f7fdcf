"""Pins: what may never be collected, by name.

    pins/<name>.json   {"schema":1,"keys":[...],"where":{...},"labels":{...}}

A pin holds the keys it lists, and every entry, also of the future, whose key
document and labels have all the values it asks for.  A pin that cannot be read
stops collecting: losing what it holds is worse than a full disk.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from artifact_cache.errors import StoreUnavailable, UnusablePin
from artifact_cache.explain import differences
from artifact_cache.files import bounded_bytes, said, sync, write_durably
from artifact_cache.key import Sha256
from artifact_cache.stores.local import LocalStore
from artifact_cache.strict_json import NotStrict, parse_object

MAX_PIN_BYTES = 1024 * 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Pointer = Annotated[str, StringConstraints(pattern=r"^/")]  # RFC 6901, `/graph/architecture`


class Pin(BaseModel):
    """Entries held by one name."""

    model_config = ConfigDict(
        defer_build=True, strict=True, frozen=True, extra="forbid", validate_by_name=True
    )

    schema_version: Literal[1] = Field(default=1, alias="schema")
    keys: tuple[Sha256, ...] = ()
    where: dict[Pointer, JsonValue] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    def holds(self, key: str, document: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
        """Report whether the pin holds an entry."""
        if key in self.keys:
            return True
        return bool(self.where or self.labels) and (
            all(_is_at(document, pointer, value) for pointer, value in self.where.items())
            and all(labels.get(name) == value for name, value in self.labels.items())
        )

    def is_empty(self) -> bool:
        """Report whether the pin can never hold anything."""
        return not (self.keys or self.where or self.labels)


class Pins:
    """The pins of a local store."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._directory = store.root / "pins"

    def add(self, name: str, pin: Pin) -> None:
        """Pin from now on; a pin of that name is replaced. It is on the disk on return."""
        path = self._path(name)
        if pin.is_empty():
            raise UnusablePin(name, "it holds nothing")
        data = pin.model_dump_json(by_alias=True).encode()
        draft = path.with_name(f".{name}.{secrets.token_hex(8)}")
        self._need_to_write()
        try:
            with self._store.no_gc():  # a collector reads the pins once it has the lock
                self._directory.mkdir(mode=0o700, exist_ok=True)
                try:
                    write_durably(draft, data)
                    draft.replace(path)
                finally:
                    draft.unlink(missing_ok=True)
                sync(self._directory)
        except OSError as error:
            raise StoreUnavailable(str(self._store.root), said(error)) from error

    def remove(self, name: str) -> bool:
        """Remove a pin. False: there was no such pin."""
        self._need_to_write()
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreUnavailable(str(self._store.root), said(error)) from error
        return True

    def all(self) -> dict[str, Pin]:
        """Read every pin, by name. Raises `UnusablePin` when one cannot be read."""
        pins = {}
        with suppress(FileNotFoundError):
            for path in sorted(self._directory.iterdir()):
                if path.suffix == ".json" and not path.name.startswith("."):
                    pins[path.stem] = _read(path)
        return pins

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise UnusablePin(name, "a name has letters, digits, '.', '_' and '-'")
        return self._directory / f"{name}.json"

    def _need_to_write(self) -> None:
        capability = self._store.capability()
        if capability.mode != "read-write":
            raise StoreUnavailable(str(self._store.root), capability.reason)


def _read(path: Path) -> Pin:
    try:
        data = bounded_bytes(path, MAX_PIN_BYTES)
        parse_object(data, max_bytes=MAX_PIN_BYTES)
        return Pin.model_validate_json(data)
    except OSError as error:
        raise UnusablePin(path.stem, said(error)) from error
    except (NotStrict, ValidationError) as error:
        raise UnusablePin(path.stem, "it is damaged or of a later version") from error


def _is_at(document: Any, pointer: str, value: JsonValue) -> bool:
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(document, Mapping) or name not in document:
            return False
        document = document[name]
    return not any(differences(document, value))
