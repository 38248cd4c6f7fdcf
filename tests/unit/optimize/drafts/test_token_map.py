"""Values of a head's own vocabulary: what engines would index with, unchecked."""

from __future__ import annotations

from packager.core.findings import Finding
from packager.core.model import HeadValues
from packager.optimize.drafts.token_map import check_medusa_map, check_token_map
from tests.support.cases import cases_of

cases = cases_of(__file__)
MODEL_TOKENS = 12


def told(found: list[Finding], expected: tuple[tuple[str, str], ...], hint: str = "") -> None:
    """Compare findings with what is expected of each, in order."""
    said = [(one.severity, one.message) for one in found]
    assert len(said) == len(expected), said
    for (severity, message), (wanted, words) in zip(said, expected, strict=True):
        assert severity == wanted, said
        assert words in message
    assert hint in "".join(one.hint for one in found)


@cases("maps", trains=False, ends=(), hint="")
def test_a_map_is_judged_by_its_values(
    d2t: tuple[int, ...] | None,
    t2d: tuple[int, ...] | None,
    ends: tuple[int, ...],
    trains: bool,
    found: tuple[tuple[str, str], ...],
    hint: str,
) -> None:
    mask = None if t2d is None else tuple(int(at in t2d) for at in range(MODEL_TOKENS))
    values = HeadValues(d2t=d2t, t2d=mask, end_tokens=ends)

    told(list(check_token_map(values, MODEL_TOKENS, trains=trains)), found, hint)


@cases("token_maps", ends=())
def test_the_map_of_medusa_heads_has_ids(
    ids: tuple[int, ...], ends: tuple[int, ...], found: tuple[tuple[str, str], ...]
) -> None:
    told(list(check_medusa_map(HeadValues(token_map=ids, end_tokens=ends), MODEL_TOKENS)), found)


def test_values_that_nobody_could_read_are_named() -> None:
    (found,) = check_token_map(None, MODEL_TOKENS)

    assert (found.severity, found.code) == ("note", "draft-mapping-unread")
