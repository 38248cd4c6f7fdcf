"""HCL of strangers: read in a time that grows with its length alone."""

from __future__ import annotations

import pytest

from packager.addons.check.hcl import parse_hcl
from packager.core.documents import NotStrict

LONG = 100_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = <<X\n" * LONG, "<<X has no end"),
        ('\\"' * LONG, ""),
        ('"' + '\\"' * LONG, ""),
        ('a = "${join(",", [\n"x"])}"', "closes nothing"),
    ],
    ids=["texts without an end", "escaped quotes", "a quote and escaped ones", "nested quotes"],
)
def test_what_is_never_closed_takes_no_longer(text: str, said: str) -> None:
    if not said:
        parse_hcl(text)
        return
    with pytest.raises(NotStrict, match=said):
        parse_hcl(text)


def test_a_text_ends_at_its_own_mark() -> None:
    (root,) = parse_hcl("a = <<-X\n one\n X2\n  X\nb = <<Y\nY\n")

    assert [(key.text, value.text) for key, value in root.pairs] == [("a", " one\n X2"), ("b", "")]
