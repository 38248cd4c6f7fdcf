"""Errors that a test expects by their code."""

from __future__ import annotations

import pytest

from packager.core.errors import PackagerError


def raises_code(*codes: str, match: str | None = None) -> pytest.RaisesExc[PackagerError]:
    """Return a context that an error with one of `codes` (none: any) must end."""

    def check(error: PackagerError) -> bool:
        return not codes or error.code in codes

    return pytest.raises(PackagerError, match=match, check=check)
