"""Credentials of one registry, wherever they come from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field

from packager.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user and password, or an identity token that buys access tokens."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    renew_at: float = field(
        default=math.inf, repr=False
    )  # seconds since 1970: when to ask for them anew


FindCredentials = Callable[[str], Credentials | None]
