"""For which outputs an SBOM is made: one that nobody keeps costs no hashing."""

from __future__ import annotations

from packager.cli.wiring.attached import keeps_documents
from packager.cli.wiring.settings import Settings, parse_output
from tests.support.cases import cases


@cases("an_sbom_is_made_where_something_keeps_it")
def test_an_sbom_is_made_where_something_keeps_it(
    outputs: tuple[str, ...], sbom: str, is_made: bool
) -> None:
    settings = Settings(outputs=tuple(map(parse_output, outputs)), sbom=sbom)  # type: ignore[arg-type]

    assert keeps_documents(settings) is is_made
