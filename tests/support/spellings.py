"""How a secret may be written: what is looked for in whatever a command made."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote


def spellings(secret: str) -> set[bytes]:
    """How a secret may be written: plain, escaped, and in base64 behind anything."""
    found = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
    for before in range(3):
        encoded = base64.b64encode(b"?" * before + secret.encode()).decode()
        # Characters at both ends depend on what is beside the secret.
        certain = encoded[{0: 0, 1: 2, 2: 3}[before] : -4]
        found |= {certain, certain.replace("+", "-").replace("/", "_")}
    return {text.encode() for text in found}
