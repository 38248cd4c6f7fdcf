"""Key documents are shared as text: no setting in one is a credential."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from artifact_cache.credentials import holds_credential, is_credential
from packager.optimize.keys.parts import Invocation
from tests.support.cases import cases


@cases("credential")
def test_a_credential_is_known_by_its_name(name: str) -> None:
    assert is_credential(name)


@cases("other")
def test_other_names_are_none(name: str) -> None:
    assert not is_credential(name)


@cases("value")
def test_a_value_is_looked_into_where_it_has_names(value: str, expected: bool) -> None:
    assert holds_credential("option", value) == expected


@cases("no_key_document_takes_a_credential")
def test_no_key_document_takes_a_credential(
    told: dict[str, tuple[str, ...] | dict[str, str]],
) -> None:
    nothing = {"compiler_args": (), "engine_args": {}, "env": {}}

    with pytest.raises(ValidationError, match="holds a credential"):
        Invocation(**{**nothing, **told})  # type: ignore[arg-type]
