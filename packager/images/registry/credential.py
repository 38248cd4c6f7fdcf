"""Credentials of one registry, wherever they come from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user and password, an identity token that buys access tokens, or such a token itself."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)
    renew_at: float = field(
        default=math.inf, repr=False
    )  # seconds since 1970: when to ask for them anew


FindCredentials = Callable[[str], Credentials | None]  # of `HOST` or `HOST/REPOSITORY`
