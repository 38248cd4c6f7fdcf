"""Reports of others at an image, and licences: what is stated, signed, listed and denied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet")
VEX = {"@context": "https://openvex.dev/ns/v0.2.0", "statements": []}
REPORT = {"ArtifactName": "tiny", "Results": []}
DATE = ("--date", "2026-11-30T12:00:00+02:00")


@pytest.fixture
def image(packager: Packager, tmp_path: Path) -> str:
    (tmp_path / "key.pub").write_text(
        packager("keys", "make", "image", "--to", "key.pem", status=0).out
    )
    packager(*BUILD, str(TINY), "--output", "oci:out", status=0)
    for name, document in (("vex", VEX), ("report", REPORT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return "oci:out"


def test_a_signed_report_counts_as_its_type_and_as_no_signature(
    packager: Packager, image: str
) -> None:
    packager("attach", image, "vex.json", "--type", "vex", "--sign", "key.pem", status=0)

    packager("verify", image, "--key", "key.pub", "--type", "vex", status=0)
    assert packager("verify", image, "--key", "key.pub", "--type", "vuln").status == 65
    assert packager("verify", image, "--key", "key.pub").status == 65


def test_a_scanners_report_has_its_date_and_tool_and_is_not_proven(
    packager: Packager, tmp_path: Path
) -> None:
    packager(*BUILD, str(TINY), "--output", "oci:out", status=0)
    (tmp_path / "report.json").write_text(json.dumps(REPORT))
    with FakeRegistry(referrers=True) as registry:
        place = f"{registry.host}/a:1"
        packager("push", "oci:out", place, "--quiet", status=0)
        words = ("--type", "vuln", "--tool", "trivy 0.58", *DATE)
        for _ in range(2):  # once is enough
            packager("attach", place, "report.json", *words, status=0)
        kind = "https://cosign.sigstore.dev/attestation/vuln/v1"
        found = [
            manifest
            for (name, _), (_, data) in registry.manifests.items()
            if name == "a" and kind in str(manifest := json.loads(data))
        ]
        blob = registry.blobs["a", found[0]["layers"][0]["digest"]]

    statement = json.loads(blob)
    assert len({json.dumps(one) for one in found}) == 1
    assert found[0]["annotations"]["org.opencontainers.image.created"] == "2026-11-30T10:00:00Z"
    assert statement["predicateType"] == kind
    assert statement["predicate"]["scanner"]["uri"] == "trivy 0.58"
    assert statement["predicate"]["scanner"]["result"] == REPORT
    assert statement["predicate"]["metadata"]["scanFinishedOn"] == "2026-11-30T10:00:00Z"


@cases("what_is_no_such_report_is_refused")
def test_what_is_no_such_report_is_refused(
    packager: Packager, image: str, words: tuple[str, ...], reason: str
) -> None:
    done = packager("attach", image, *words, status=2)

    assert reason in done.err


def _card(place: Path, head: str) -> None:
    shutil.copytree(TINY, place)
    (place / "README.md").write_text(f"---\n{head}\n---\n# A model\n")


def test_licences_of_an_image_are_listed(packager: Packager, tmp_path: Path) -> None:
    _card(tmp_path / "m", "license: other\nlicense_name: acme-1.0\nbase_model: a/b")
    packager(*BUILD, "m", "--output", "oci:out", "--output", "dir:tree", status=0)

    for place in ("oci:out", "dir:tree"):
        rows = packager("list", "licences", place, "--format", "json", status=0).document
        assert rows == [{"part": "model", "licence": "acme-1.0"}]
    assert packager("list", "licences").status == 2


@cases("a_model_with_a_denied_licence_is_not_built")
def test_a_model_with_a_denied_licence_is_not_built(
    packager: Packager, tmp_path: Path, head: str, denied: str, status: int
) -> None:
    """One that states none is not denied."""
    _card(tmp_path / "m", head)
    words = (*BUILD, "m", "--output", "oci:out")

    packager(*words, "--deny-licence", denied, status=status)

    assert (tmp_path / "out").exists() == (status == 0)
    policy = tmp_path / "policy.toml"
    policy.write_text(f'default = "accept"\ndeny_licences = ["{denied}"]\n')
    assert packager(*words, "--policy", "policy.toml").status == status
