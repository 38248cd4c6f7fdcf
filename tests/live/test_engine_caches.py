"""Layouts of caches against those that vLLM's own functions make of the same layers."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from typing import Any

import pytest

from packager.estimate.sizing.kv_cache import find_groups, make_layout
from packager.models.architectures.profile import make_profile
from tests.support.cases import read_tables
from tests.support.places import ROOT
from tests.support.shapes import plain
from tests.support.vllm_packages import python_3_11, unpacked_base
from tests.unit.estimate.sizing.test_kv_cache import PAGING

BLOCK = 32  # tokens: vLLM counts one block more of a window that a request does not fill
LENGTHS = [(8192, 8192), (131_072, 2048)]


def token_bytes(group: dict[str, Any]) -> int:
    """Return what a token takes in one layer of attention, as the model's code describes it."""
    return int(group["head_dim"]) * (4 * group["kv_heads"] if group["kind"] == "full" else 2)


@pytest.mark.extended
def test_a_request_takes_what_vllm_counts() -> None:
    cases: list[dict[str, Any]] = []
    ours = []
    for name in read_tables(__file__)["models"]:
        profile, _ = make_profile(plain(name))
        layout = make_layout(profile, "nvidia", 1, 1, PAGING, element_bytes=2)
        groups = [asdict(group) for group in find_groups(profile)]
        case = {
            "name": name,
            "groups": groups,
            "block_tokens": layout.block_tokens,
            "page_bytes": layout.block_tokens * max(map(token_bytes, groups)),
        }
        for tokens, in_flight in LENGTHS:
            cases.append(case | {"tokens": tokens, "in_flight": in_flight})
            ours.append(layout.request_bytes(tokens, in_flight))

    done = subprocess.run(
        [python_3_11(), "-S", str(ROOT / "tests/live/engine_caches.py")],
        input="\n".join(map(json.dumps, cases)),
        env={"PATH": os.environ["PATH"], "HOME": "/tmp", "PYTHONPATH": str(unpacked_base())},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    theirs = [json.loads(line)["bytes"] for line in done.stdout.splitlines()]
    errors = {
        f"{case['name']} {case['tokens']} {case['in_flight']}": own / their - 1
        for case, own, their in zip(cases, ours, theirs, strict=True)
        if abs(own / their - 1) > 0.01 + BLOCK / case["tokens"]
    }
    assert errors == {}
