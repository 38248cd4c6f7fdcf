"""Proof that a running server answers with the adapter that is named, and not with its base.

Servers answer some names with the base and say nothing. What tells them apart is arithmetic: two
trained matrices change the logarithm of a token's odds, whatever the text. What two requests of
the base differ by is the noise that an adapter has to rise above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import urllib3

from packager.cli.serving.openai import BadAnswer
from packager.cli.serving.opening import OpenServer
from packager.core.documents import NotStrict, field, parse_json, shorten
from packager.core.errors import SmokeFailed

PROMPTS = ("def loads(", "The capital of France is", "1, 2, 3, 4,", "Dear Sir or Madam,")
HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
LEAST = 1e-4  # difference of logarithms: below it, 16-bit sums in another order may be all
NOISE = 4.0  # times as far from the base as two answers of the base are from one another
PATHS = ("/v1/completions", "/invocations")

Ask = Callable[[str, Mapping[str, Any], Mapping[str, str]], Any]  # path, body, headers → document


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterProof:
    """An adapter that answered on a path."""

    name: str
    path: str
    model: str  # what reached it there
    difference: float  # of the logarithms of the odds, the largest of all prompts


def adapter_headers(path: str, model: str) -> Mapping[str, str]:
    """Return the headers that name a model beside the body: SageMaker's layers want one."""
    return {HEADER: model} if model and path == "/invocations" else {}


def reach_adapters(
    server: OpenServer, names: Sequence[str], path: str
) -> tuple[Mapping[str, str], bool]:
    """Return what a server calls each adapter on a path, and whether that is proven.

    Raises `SmokeFailed` where the base answers.  A server that shows no odds proves nothing.
    """

    def ask(where: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        try:
            status, data = server.server.post(where, document, headers)
        except (BadAnswer, urllib3.exceptions.HTTPError) as error:
            raise server.failure(f"{server.shown!r} does not answer on {where}") from error
        if status != 200:
            said = shorten(data[:300].decode(errors="replace"), 300)
            raise server.failure(f"{where} answered {status}: {said}")
        return parse_json(data)

    others = [name for name in names if name != server.model]
    called = dict(zip(names, names, strict=True))
    try:
        shows_odds = any(_odds(ask, path, server.model))
    except (SmokeFailed, NotStrict):
        shows_odds = False
    if not (shows_odds and others):
        return called, not others
    proofs = prove_adapters(ask, server.model, others, (path,))
    return called | {one.name: one.model for one in proofs}, True


def named_server(server: OpenServer, adapter: str) -> OpenServer:
    """Return a server that is asked for one of its adapters; itself without a name."""
    if not adapter:
        return server
    called, _ = reach_adapters(server, (adapter,), PATHS[0])
    return replace(server, model=called[adapter], shown=f"{server.shown}, adapter {adapter}")


def prove_adapters(
    ask: Ask, base: str, names: Sequence[str], paths: Sequence[str] = PATHS
) -> tuple[AdapterProof, ...]:
    """Compare each adapter with the base on every path; raise `SmokeFailed` where they are one."""
    proofs = []
    for path in paths:
        first, second = (_odds(ask, path, base) for _ in range(2))
        floor = max(LEAST, NOISE * _distance(first, second))
        for name in names:
            proofs.append(_prove(ask, path, base, name, first, floor))
    return tuple(proofs)


def _prove(
    ask: Ask, path: str, base: str, name: str, own: Sequence[Mapping[str, float]], floor: float
) -> AdapterProof:
    """Ask by the adapter's name, then as SGLang wants it: the base's before it."""
    for model in (name, f"{base}:{name}"):
        try:
            found = _distance(own, _odds(ask, path, model))
        except SmokeFailed:
            if model == name:
                continue  # it may be known by the other name
            raise
        if found > floor:
            return AdapterProof(name=name, path=path, model=model, difference=found)
    raise SmokeFailed(
        f"the adapter {name!r} answers as the base does on {path}: its deltas are not applied",
        hint="see the server's log; an adapter whose B is all zeros was never trained",
        code="AdapterSilent",
    )


def _odds(ask: Ask, path: str, model: str) -> list[Mapping[str, float]]:
    """Return the likeliest next tokens of each prompt, with the logarithms of their odds."""
    found: list[Mapping[str, float]] = []
    for prompt in PROMPTS:
        body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 5}
        document = ask(path, body, adapter_headers(path, model))
        choices = field(document, "choices", list)
        stated = field(choices[0] if choices else None, "logprobs", dict, "choices[0]")
        tops = stated.get("top_logprobs")
        top = tops[0] if isinstance(tops, list) and tops else {}
        odds = top if isinstance(top, dict) else {}
        found.append({str(token): float(value) for token, value in odds.items()})
    return found


def _distance(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> float:
    """Return the largest difference; a token that only one lists is as far as its rank tells."""
    most = 0.0
    for a, b in zip(one, other, strict=True):
        if not a or not b:
            continue
        least = min(*a.values(), *b.values())
        most = max(most, *(abs(a.get(token, least) - b.get(token, least)) for token in {*a, *b}))
    return most
