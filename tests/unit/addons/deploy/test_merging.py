"""Patches: as RFC 6902 and Kubernetes' schemas have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonpatch
import kubernetes_validate
import pytest

from packager.addons.deploy.kubernetes.patching import RULES
from packager.addons.deploy.merging import CannotMerge, MergeRules, merge, operate
from packager.addons.deploy.patches import parse_patch
from tests.support.cases import cases
from tests.support.refusals import raises_code


@cases("operations")
def test_operations_do_what_jsonpatch_does(document: Any, patch: list[Any]) -> None:
    try:
        wanted = jsonpatch.apply_patch(document, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(CannotMerge):
            operate(document, patch)
    else:
        assert operate(document, patch) == wanted


@cases("merges", key=None)
def test_parts_merge(document: Any, part: Any, found: Any, key: str | None) -> None:
    rules = MergeRules(keys={"a": (key,)}) if key else MergeRules()
    assert merge(document, part, rules) == found


def test_lists_have_the_keys_of_kubernetes_schemas() -> None:
    place = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    text = (place / "v1.37.0-local-strict/_definitions.json").read_text()
    there: dict[str, set[str]] = {}
    for name, definition in json.loads(text)["$defs"].items():
        if name.rpartition(".")[2] in ("PodSpec", "Container", "ServiceSpec"):
            for field, one in definition["properties"].items():
                if key := one.get("x-kubernetes-patch-merge-key"):
                    there.setdefault(field, set()).add(key)
    del there["evictionResponders"]  # new in 1.37, and of other programs

    assert {name: {*RULES.keys[name]} for name in there} == there


@cases("unreadable")
def test_what_is_no_patch_is_refused(text: str, told: str) -> None:
    with raises_code("BadPatch", match=told):
        parse_patch(text.encode(), "patch.yaml")
