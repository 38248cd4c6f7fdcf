"""The SBOM of a build: what is in it, where it is kept, and what its judges say."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, Packager, printed
from tests.support.doubles.registry import FakeRegistry
from tests.support.sboms import faults_of

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet")


def sbom_of(packager: Packager, place: str) -> dict[str, Any]:
    text = printed(packager, "sbom", place, "--format", "json")
    judge = pytest.importorskip("cyclonedx.validation.json")
    version = pytest.importorskip("cyclonedx.schema").SchemaVersion.V1_6
    assert judge.JsonStrictValidator(version).validate_str(text) is None
    document: dict[str, Any] = json.loads(text)
    assert faults_of(document) == []
    return document


def parts_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["bom-ref"]: one for one in document["components"]}


def test_every_file_of_the_model_has_the_digest_of_its_bytes(
    packager: Packager, tmp_path: Path
) -> None:
    shutil.copytree(TINY, tmp_path / "model")
    digest = printed(packager, *BUILD, "model", "--output", "oci:out").rpartition("@")[2]

    document = sbom_of(packager, "oci:out")

    files = {one["name"]: one["hashes"] for one in parts_of(document)["model"]["components"]}
    assert len(files) == 9
    for name, hashes in files.items():
        found = hashlib.sha256((tmp_path / "model" / name).read_bytes()).hexdigest()
        assert hashes == [{"alg": "SHA-256", "content": found}]
    assert document["metadata"]["component"]["version"] == digest
    assert parts_of(document)["model"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    told = {one["aggregate"]: one["assemblies"] for one in document["compositions"]}
    assert told == {"complete": ["configuration", "model"], "incomplete": ["engine", "image"]}


def test_cards_of_model_draft_and_adapter_state_licences(
    packager: Packager, tmp_path: Path
) -> None:
    """In the plan, in the SBOM, and where one is denied."""
    examples = TINY.parent
    for name in ("tiny-llama-adapter", "tiny-llama-draft"):
        shutil.copytree(examples / name, tmp_path / name)
    card = "---\nlicense: cc-by-nc-4.0\n---\n"
    (tmp_path / "tiny-llama-adapter/README.md").write_text(card)
    (tmp_path / "tiny-llama-draft/README.md").write_text(card.replace("cc-by-nc-4.0", "mit"))
    parts = ("--adapter", "a=tiny-llama-adapter")
    words = (str(TINY), *parts, "--format", "json", "--output", "oci:out")

    plan = json.loads(printed(packager, *BUILD, *words, "--dry-run"))["plan"]
    printed(packager, *BUILD, *words)
    drafted = (str(TINY), "--draft", "tiny-llama-draft", "--output", "oci:drafted")
    printed(packager, *BUILD, *drafted)

    note = next(one for one in plan["findings"] if one["code"] == "licences-stated")
    assert note["data"] == {"model": "Apache-2.0", "adapter a": "CC-BY-NC-4.0"}
    of_adapter = parts_of(sbom_of(packager, "oci:out"))["adapter/a"]
    assert of_adapter["licenses"] == [{"license": {"id": "CC-BY-NC-4.0"}}]
    assert "README.md" not in [one["name"] for one in of_adapter["components"]]
    of_draft = parts_of(sbom_of(packager, "oci:drafted"))["draft"]
    assert of_draft["licenses"] == [{"license": {"id": "MIT"}}]
    for asked, denied in ((parts, "CC-BY-NC-*"), (drafted[1:3], "MIT")):
        refused = packager(
            *BUILD, str(TINY), *asked, "--deny-licence", denied, "--output", "oci:none"
        )
        assert refused.status != 0
        assert "is denied" in refused.err


def test_equal_builds_have_equal_sboms_and_no_digest_changes(
    packager: Packager, tmp_path: Path
) -> None:
    """Another directory, another state: nothing of the machine is in it."""
    shutil.copytree(TINY, tmp_path / "elsewhere/tiny-llama")
    first = printed(packager, *BUILD, str(TINY), "--output", "oci:a").rpartition("@")[2]
    again = packager(
        *BUILD, "elsewhere/tiny-llama", "--output", "oci:b", env={"XDG_STATE_HOME": "other"}
    )
    without = printed(packager, *BUILD, str(TINY), "--no-sbom", "--output", "oci:c")

    documents = [printed(packager, "sbom", f"oci:{name}", "--format", "json") for name in "ab"]
    assert documents[0] == documents[1]
    assert str(tmp_path) not in documents[0]
    assert first == again.out.strip().rpartition("@")[2] == without.rpartition("@")[2]
    assert packager("sbom", "oci:c").status == 66


def test_a_build_that_reads_nothing_knows_the_digests(packager: Packager) -> None:
    printed(packager, *BUILD, str(TINY), "--output", "oci:a")
    again = json.loads(
        printed(packager, *BUILD, str(TINY), "--output", "oci:a", "--format", "json")
    )

    assert again["transfer"]["bytes_read"] == 0
    assert parts_of(sbom_of(packager, "oci:a"))["model"]["components"][0]["hashes"]


def test_a_card_states_licence_and_base_models(packager: Packager, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "model")
    card = "---\nlicense: llama3.1\nbase_model: [meta-llama/Llama-3.1-8B]\ndatasets: wiki\n---\n#"
    (tmp_path / "model/README.md").write_text(card)
    printed(packager, *BUILD, "model", "--output", "oci:out")

    model = parts_of(sbom_of(packager, "oci:out"))["model"]
    spdx = json.loads(printed(packager, "sbom", "oci:out", "--format", "spdx"))

    assert model["licenses"] == [{"license": {"name": "llama3.1"}}]
    ancestors = [f"{one['group']}/{one['name']}" for one in model["pedigree"]["ancestors"]]
    assert ancestors == ["meta-llama/Llama-3.1-8B"]
    assert spdx["hasExtractedLicensingInfos"][0]["licenseId"] == "LicenseRef-llama3.1"


def test_the_view_in_spdx_is_valid(packager: Packager) -> None:
    printed(packager, *BUILD, str(TINY), "--output", "oci:out")

    spdx = json.loads(printed(packager, "sbom", "oci:out", "--format", "spdx"))

    parser = pytest.importorskip("spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser")
    judge = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    assert judge.validate_full_spdx_document(parser.JsonLikeDictParser().parse(spdx)) == []
    assert len({one["SPDXID"] for one in spdx["packages"]}) == len(spdx["packages"]) == 17


def test_outputs_keep_the_sbom_and_copies_take_it_along(packager: Packager) -> None:
    with FakeRegistry(referrers=True) as registry:
        printed(
            packager, *BUILD, str(TINY), "--output", f"{registry.host}/a:1", "--output", "dir:tree"
        )
        printed(packager, "copy", f"{registry.host}/a:1", "oci:copy", "--quiet")
        pushed = printed(packager, "sbom", f"{registry.host}/a:1", "--format", "json")
    beside = sbom_of(packager, "dir:tree")

    assert printed(packager, "sbom", "oci:copy", "--format", "json") == pushed
    assert parts_of(beside)["model"]["components"]
    assert "an SBOM, unproven" in printed(packager, "inspect", "oci:copy")


@pytest.mark.parametrize(("policy", "status"), [("attached", 0), ("required", 76)])
def test_a_registry_that_refuses_it_warns_unless_it_is_required(
    packager: Packager, policy: str, status: int
) -> None:
    with FakeRegistry(no_artifacts=True) as registry:
        place = f"{registry.host}/a:1"
        done = packager(*BUILD, str(TINY), "--sbom", policy, "--output", place, status=status)

        assert "what shall be attached to it is not" in done.err


def test_an_engine_keeps_none(packager: Packager) -> None:
    done = packager(*BUILD, str(TINY), "--sbom", "required", "--output", "docker:x", status=2)

    assert "keeps nothing beside an image" in done.err
