"""Objects with which clusters admit images by key, read back as YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from packager.addons.deploy.kubernetes.admission import VERIFIERS
from packager.addons.deploy.kubernetes.documents import render_object

PEM = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"


def rendered(verifier: str) -> dict[str, Any]:
    document = VERIFIERS[verifier]("signed", ["registry.example.com/models/*"], PEM)
    found: dict[str, Any] = yaml.safe_load(render_object("policy.yaml", document).text)
    return found


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_the_key_comes_back_whole(verifier: str) -> None:
    texts = _texts(rendered(verifier))

    assert PEM in texts
    assert "registry.example.com/models/*" in texts


def test_kyverno_asks_no_log_and_no_authority_and_refuses() -> None:
    [rule] = rendered("kyverno")["spec"]["rules"]
    [verified] = rule["verifyImages"]
    keys = verified["attestors"][0]["entries"][0]["keys"]

    assert (verified["type"], verified["failureAction"]) == ("Cosign", "Enforce")
    assert (verified["required"], verified["mutateDigest"]) == (True, True)
    assert (keys["rekor"], keys["ctlog"]) == ({"ignoreTlog": True}, {"ignoreSCT": True})


def test_policy_controller_ignores_the_log_where_none_is_named() -> None:
    [authority] = rendered("policy-controller")["spec"]["authorities"]

    assert set(authority) == {"name", "key"}


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []
