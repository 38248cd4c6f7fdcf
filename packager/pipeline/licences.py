"""Cards of the models in a build, and the licences that they state."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.images.sbom.components import LicenseClaim
from packager.images.sbom.licences import stated_license
from packager.models.model_card import ModelCard, card_of
from packager.pipeline.services import BuildServices

_NONE = "none stated"


def licences_of(card: ModelCard) -> tuple[LicenseClaim, ...]:
    """Return the licence that a card states, in SPDX's words; () without one."""
    found = stated_license(card.license, card.license_name, card.license_link)
    return (found,) if found else ()


def licence_of(card: ModelCard) -> str:
    """Return the licence that a card states, as one word or name; "" without one."""
    return next((claim.id or claim.name for claim in licences_of(card)), "")


def cards_of(facts: Facts, services: BuildServices) -> Iterator[tuple[str, ModelCard]]:
    """Yield `model`, `draft` and `adapter NAME` with their cards.

    A published draft has the licence of packager's table where its own card states none.
    """
    yield "model", card_of(facts.model.files, services.read_small)
    if facts.draft is not None:
        card = card_of(facts.draft.files, services.read_small)
        yield "draft", card if card.license else ModelCard(license=facts.draft_license)
    for adapter in (*facts.adapters, *([facts.merged] if facts.merged else ())):
        files = [adapter.card] if adapter.card else []
        yield f"adapter {adapter.name}", card_of(files, services.read_small)


def licence_findings(facts: Facts, services: BuildServices) -> tuple[Finding, ...]:
    """Return a note with each part's licence; () where no card states one."""
    found = {part: licence_of(card) for part, card in cards_of(facts, services)}
    if not any(found.values()):
        return ()
    words = ", ".join(f"{part} {licence or _NONE}" for part, licence in found.items())
    data = {part: licence for part, licence in found.items() if licence}
    return (Finding("note", "licences-stated", f"licences: {words}", data=data),)
