"""A smoke test tells adapters from their base, whatever a server makes of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from packager.cli.serving.adapters import HEADER, prove_adapters
from packager.cli.serving.openai import listed_adapters
from packager.core.errors import SmokeFailed
from tests.support.refusals import raises_code

Server = Callable[[str, Mapping[str, Any], Mapping[str, str]], str]  # who answers


def answering(server: Server, noise: float = 0.0) -> Callable[..., Any]:
    asked = iter(range(10_000))

    def ask(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        who = server(path, body, headers)
        if not who:
            raise SmokeFailed("404")
        moved = {"base": 0.0, "sql": 0.5, "faint": 0.00001}[who] + noise * (next(asked) % 2)
        top = {" a": -0.1 - moved, " b": -2.0 + moved}
        return {"choices": [{"logprobs": {"top_logprobs": [top]}}]}

    return ask


def by_model(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    return {"tiny": "base", "sql": "sql"}.get(str(body["model"]), "")


def by_header(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    named = headers.get(HEADER) if path == "/invocations" else str(body["model"])
    return {"tiny": "base", "sql": "sql"}.get(str(named), "")


def with_colon(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    return "sql" if str(body["model"]).endswith(":sql") else "base"


@pytest.mark.parametrize(
    ("server", "model"), [(by_model, "sql"), (by_header, "sql"), (with_colon, "tiny:sql")]
)
def test_an_adapter_that_answers_is_proven_on_every_path(server: Server, model: str) -> None:
    proofs = prove_adapters(answering(server), "tiny", ["sql"])

    assert [(one.path, one.model) for one in proofs] == [
        ("/v1/completions", model),
        ("/invocations", model),
    ]
    assert all(one.difference == pytest.approx(0.5) for one in proofs)


@pytest.mark.parametrize("who", ["base", "faint"])
def test_an_adapter_that_the_base_answers_for_fails(who: str) -> None:
    def server(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        return who if "sql" in str(body["model"]) else "base"

    with raises_code("AdapterSilent", match="answers as the base does"):
        prove_adapters(answering(server), "tiny", ["sql"])


def test_noise_of_the_base_is_no_adapter() -> None:
    with raises_code("AdapterSilent"):
        prove_adapters(answering(lambda *_: "base", noise=0.2), "tiny", ["sql"])


def test_one_path_that_loses_the_name_is_enough_to_fail() -> None:
    def server(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        return "base" if path == "/invocations" else by_model(path, body, headers)

    with raises_code("AdapterSilent", match="/invocations"):
        prove_adapters(answering(server), "tiny", ["sql"])


def test_adapters_of_a_list_are_those_with_a_parent() -> None:
    models = [{"id": "tiny"}, {"id": "sql", "parent": "tiny"}, "odd", {"id": "b", "parent": None}]

    assert listed_adapters(models) == ("sql",)
