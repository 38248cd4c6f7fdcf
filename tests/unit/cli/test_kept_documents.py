"""For which outputs an SBOM is made: one that nobody keeps costs no hashing."""

from __future__ import annotations

import pytest

from packager.cli.wiring.attached import keeps_documents
from packager.cli.wiring.settings import Settings, parse_output


@pytest.mark.parametrize(
    ("outputs", "sbom", "is_made"),
    [
        (("docker:model:1",), "attached", False),
        (("docker:model:1", "oci:out"), "attached", True),
        (("dir:out",), "attached", True),
        (("host.example/model:1",), "attached", True),
        (("host.example/model:1",), "none", False),
        ((), "attached", True),
    ],
)
def test_an_sbom_is_made_where_something_keeps_it(
    outputs: tuple[str, ...], sbom: str, is_made: bool
) -> None:
    settings = Settings(outputs=tuple(map(parse_output, outputs)), sbom=sbom)  # type: ignore[arg-type]

    assert keeps_documents(settings) is is_made
