"""Persisted documents keep the schema of their version, and those of released versions are read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from packager.core.documents import NotStrict
from tests.support.document_kinds import KINDS, DocumentKind
from tests.support.document_kinds.kinds import EXAMPLES, FROZEN
from tests.support.frozen_schemas import changes_of

BY_NAME = {kind.name: kind for kind in KINDS}
FILE = re.compile(r"(?P<kind>[a-z0-9-]+?)-(?P<version>\d+)(?:-of-(?P<release>\d+\.\d+\.\d+))?")


def version_of(path: Path) -> tuple[str, int]:
    found = FILE.fullmatch(path.name.removesuffix(path.suffix))
    assert found is not None, path.name
    return found["kind"], int(found["version"])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_schema_is_the_frozen_one_of_its_version(kind: DocumentKind, tmp_path: Path) -> None:
    assert kind.frozen.is_file(), f"run scripts/freeze-schemas: {kind.frozen.name} is not there"
    changes = changes_of(json.loads(kind.frozen.read_bytes()), kind.schema(tmp_path))

    assert not changes, kind.advice(changes)


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_a_document_of_each_version_is_read_or_refused_with_its_reason(
    path: Path, tmp_path: Path
) -> None:
    name, version = version_of(path)
    kind = BY_NAME[name]

    if version in kind.refused:
        with pytest.raises(NotStrict, match=kind.refused[version]):
            kind.read(path.read_bytes(), tmp_path)
    else:
        kind.read(path.read_bytes(), tmp_path)


def test_each_frozen_version_has_an_example_and_each_example_a_kind() -> None:
    frozen = {version_of(path) for path in FROZEN.iterdir()}
    examples = {version_of(path) for path in EXAMPLES.iterdir()}

    assert frozen == examples
    assert {name for name, _ in frozen} == set(BY_NAME)
    assert len(BY_NAME) == len(KINDS)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(FROZEN.iterdir()) if (EXAMPLES / path.name).is_file()],
    ids=lambda path: path.name,
)
def test_an_example_fits_the_schema_of_its_version(path: Path) -> None:
    kind = BY_NAME[version_of(path)[0]]
    example = json.loads((EXAMPLES / path.name).read_bytes())

    jsonschema.validate(kind.part(example), json.loads(path.read_bytes()))


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_an_example_names_no_place_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
