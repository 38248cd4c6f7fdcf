"""Engine options that a compile key contains, as data: see `data/key_options.toml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from artifact_cache.credentials import holds_credential, is_credential
from packager.core.share import read_shipped

DATA = Path(__file__).parent / "data" / "key_options.toml"

OptionClass = Literal["compiled", "left_out", "credentials", "unknown"]


def keyed_options(options: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the options that go into a key, by their plain names.

    Unclassified options go in: a false miss costs only minutes.
    """
    for asked, value in options:
        name = plain_name(asked)
        if option_class(name) in ("compiled", "unknown"):
            yield name, value


def plain_name(name: str) -> str:
    """Return an option's name as the tables have it: `--Max_Num_Seqs` is `max-num-seqs`."""
    return name.lstrip("-").lower().replace("_", "-")


def option_class(name: str) -> OptionClass:
    """Return the list that has an option; a switch's negation is in the switch's list."""
    known = classes()
    found = known.get(name) or known.get(name.removeprefix("no-"))
    if found is None:
        return "credentials" if is_credential(name) else "unknown"
    return found


def credential_option(name: str, value: str) -> bool:
    """Return whether a requested option would put a credential where others can read it."""
    plain = plain_name(name)
    known = classes().get(plain)
    if known is None or known == "credentials":
        return option_class(plain) == "credentials" or holds_credential(plain, value)
    return holds_credential("", value)  # a name that only looks like one: `allow-credentials`


@cache
def classes() -> Mapping[str, OptionClass]:
    """Read the class of every option that is classified."""
    found: dict[str, OptionClass] = {}
    tables: dict[str, Any] = read_shipped(DATA)  # by engine
    for table in tables.values():
        found |= dict.fromkeys(table["compiled"], "compiled")
        found |= dict.fromkeys(table["credentials"], "credentials")
        for names in table["left_out"].values():
            found |= dict.fromkeys(names, "left_out")
    return found
