"""The key that authenticates claims: where it is, who may read it, who makes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from packager.images.claim_key import load_key
from tests.support.known import known
from tests.unit.images.test_claim_key import environment as environment
from tests.unit.images.test_claim_key import own as own


def test_first_builds_at_once_use_one_key(environment: dict[str, str], own: Path) -> None:
    program = (
        "import sys, os; from packager.images.claim_key import make_key; "
        "sys.stdin.readline(); print(make_key(os.environ).id)"
    )
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for one in racing:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()

    found = {one.communicate(timeout=60)[0].strip() for one in racing}

    key = known(load_key(environment))
    assert found == {key.id}
