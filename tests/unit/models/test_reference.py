"""Where a model reference points, by its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import UsageError
from packager.models.reference import hub_of, parse_model_reference
from tests.support.cases import cases


@cases("what_looks_like_a_path_is_local")
def test_what_looks_like_a_path_is_local(reference: str) -> None:
    assert parse_model_reference(reference).source == "local"


@cases("an_id_is_on_the_hub")
def test_an_id_is_on_the_hub(reference: str, means: str | None) -> None:
    found = parse_model_reference(reference)

    assert found.source == "hub"
    assert means in (None, hub_of(found).name)


@pytest.mark.parametrize("there", ["org/name", "model"], ids=["wins over an id", "has no slash"])
def test_a_directory_that_is_there_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    (tmp_path / there).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_model_reference(there).source == "local"


@pytest.mark.parametrize("reference", ["model", "", "org/na me", "hf://x", "org/name@"])
def test_anything_else_is_told_both_forms(reference: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model_reference(reference)
    assert "`./DIR`" in caught.value.hint
    assert "`org/name@revision`" in caught.value.hint
