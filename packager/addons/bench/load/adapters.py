"""Adapters of a load: which one each request goes to, by shares that depend on the seed alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packager.addons.bench.load.draws import draws
from packager.addons.bench.load.values import LoadRequest
from packager.core.errors import UsageError

EVERY = "*"  # adapter that a server lists
_HINT = "write NAME, NAME=SHARE, or '*' for every adapter that the server lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterMix:
    """Names with their shares of the requests, and what a server is asked for by each."""

    shares: Mapping[str, float]  # add up to 1
    models: Mapping[str, str]
    is_proven: bool = True  # each answers otherwise than the base


def parse_shares(texts: Sequence[str]) -> dict[str, float]:
    """Parse `NAME` and `NAME=SHARE`; raise `UsageError` for others. The base has a name, too."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, share = text.partition("=")
        if name in found:
            raise UsageError(f"the adapter {name[:80]!r} is named twice", hint="name it once")
        try:
            found[name] = float(share) if equals else 1.0
        except ValueError:
            found[name] = 0.0
        if not name or not 0 < found[name] < 1e9:
            raise UsageError(f"{text[:80]!r} is not an adapter and its share", hint=_HINT)
    return found


def settle_shares(
    wanted: Mapping[str, float], listed: Sequence[str], zipf: float | None
) -> dict[str, float]:
    """Return the shares, which add up to 1; `*` stands for what is listed and not named.

    With `zipf` the one at place k gets 1/k^zipf of its share.
    """
    others = [name for name in listed if name not in wanted]
    if EVERY in wanted and not others and len(wanted) == 1:
        raise UsageError("the server lists no adapters", hint="name them: --adapter NAME")
    given: dict[str, float] = {}
    for name, share in wanted.items():
        given |= dict.fromkeys(others, share) if name == EVERY else {name: share}
    weights = {
        name: share / place ** (zipf or 0.0)
        for place, (name, share) in enumerate(given.items(), start=1)
    }
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in weights.items()}


def dealt(requests: Iterator[LoadRequest], mix: AdapterMix, *key: object) -> Iterator[LoadRequest]:
    """Yield the requests, each for an adapter; the same ones for the same key."""
    names = list(mix.shares)
    sums = list(itertools.accumulate(mix.shares.values()))
    for number, request in enumerate(requests):
        drawn = draws("adapters", *key, number).random()
        at = next((place for place, most in enumerate(sums) if drawn < most), len(names) - 1)
        yield replace(request, adapter=names[at], model=mix.models[names[at]])


def mix_words(texts: Sequence[str], zipf: float | None) -> str:
    """Return a mix as it is asked for; "" without adapters."""
    return ", ".join(texts) + (f", by 1/place^{zipf:g}" if zipf and texts else "")
