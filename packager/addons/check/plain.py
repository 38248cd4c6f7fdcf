"""Checks of settings for every engine: credentials, remote code, duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packager.addons.check.values import Remark, Setting
from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.findings import Finding
from packager.core.key_options import credential_option
from packager.engines.shared import asks_for_code

SECRETS = "take it from a secret when the server starts, such as valueFrom.secretKeyRef or a file"

PLAIN = frozenset({"true", "false", "none", "null", "auto"})
LEAST_DIGITS = 12  # of a number that may be a credential; shorter ones are counts of tokens


def check_setting(setting: Setting) -> Iterator[Remark]:
    """Find what a setting shows or allows, whichever engine reads it. No value is repeated."""
    if setting.value is None:
        return
    if holds_secret(setting.name, setting.value):
        message = f"{shorten(setting.name, 60)} holds a credential that everybody who reads the "
        message += "file can use"
        yield Remark(setting.place, Finding("warning", "credential-in-file", message, SECRETS))
    if asks_for_code(setting.name, setting.value):
        message = f"{shorten(setting.name, 60)} lets the engine run code from the model's files"
        hint = "pin the model's revision and read its code, or use a model that needs none"
        yield Remark(setting.place, Finding("warning", "remote-code", message, hint))


def holds_secret(name: str, value: str) -> bool:
    """Report whether a setting's value is a credential, and no reference to one, number or file."""
    is_reference = not value or value.startswith(("$", "{{", "<", "/"))
    is_plain = value.lower() in PLAIN or (len(value) < LEAST_DIGITS and value.isdecimal())
    if is_reference or is_plain or not credential_option(name, value):
        return False
    return not value.lstrip().startswith(("{", "[")) or _shows_secret(name, value)


def _shows_secret(name: str, text: str) -> bool:
    """Return whether JSON holds credentials; `classifier_from_token` with words does not."""
    try:
        waiting = [(name, parse_json(text.encode()))]
    except (NotStrict, UnicodeEncodeError):
        return True  # whatever it is, it is named like one
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [("", one) for one in value]
        elif isinstance(value, str) and value and credential_option(key, value):
            return True
    return False


def check_repeats(settings: Sequence[Setting]) -> Iterator[Remark]:
    """Find settings that a later one of the same name and place overrides."""
    last: dict[str, Setting] = {}
    for setting in settings:
        earlier = last.get(setting.name)
        last[setting.name] = setting
        if earlier is not None and earlier.place.file == setting.place.file:
            message = (
                f"{shorten(setting.name, 60)} has no effect: line {setting.place.line} sets it "
                "again, and the last one wins"
            )
            yield Remark(
                earlier.place, Finding("warning", "setting-repeated", message, "set it once")
            )
