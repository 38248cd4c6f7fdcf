"""Models that their publishers sign, and trees that we sign."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.images.oci import canonical_json
from packager.images.signatures.keys import load_image_signer
from packager.images.signatures.model_signing import check_directory, sign_model
from packager.images.signatures.verifying import PublicKey
from tests.support.commandline import TINY, Packager
from tests.support.refusals import raises_code

BUILD = ("build", "model", "--instance", "local", "--base", "scratch", "--quiet")


@pytest.fixture
def model(packager: Packager, tmp_path: Path) -> Path:
    """A model that its publisher has signed: all files but the signature."""
    for name in ("publisher", "other"):
        public = packager("keys", "make", "image", "--to", f"{name}.pem", status=0).out
        (tmp_path / f"{name}.pub").write_text(public)
    place = tmp_path / "model"
    shutil.copytree(TINY, place)
    sign(tmp_path)
    return place


def sign(root: Path, key: str = "publisher", **others: str) -> None:
    import hashlib

    model = root / "model"
    files = {
        path.relative_to(model).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in model.rglob("*")
        if path.is_file() and path.name != "model.sig"
    }
    signer = load_image_signer(str(root / f"{key}.pem"), {})
    (model / "model.sig").write_bytes(sign_model(signer, "tiny", {**files, **others}))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def linked(root: Path, name: str) -> None:
    shutil.move(root / "model" / name, root / name)
    (root / "model" / name).symlink_to(root / name)


def changed(root: Path) -> None:
    place = root / "model/model.sig"
    document = json.loads(place.read_bytes())
    document["dsseEnvelope"]["payload"] = document["dsseEnvelope"]["payload"][::-1]
    place.write_bytes(canonical_json(document))


def behind(root: Path) -> None:
    (root / "elsewhere").mkdir()
    (root / "elsewhere/x").write_text("x")
    sign(root, **{"more/x": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"})
    (root / "model/more").symlink_to(root / "elsewhere")


WEIGHTS = "model-00001-of-00003.safetensors"
ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a weight was changed": (lambda root: flip(root / "model" / WEIGHTS), "has other bytes"),
    "the configuration was changed": (
        lambda root: (root / "model/config.json").write_text("{}"),
        "'config.json' has other bytes",
    ),
    "a weight is missing": (lambda root: (root / "model" / WEIGHTS).unlink(), "no such file"),
    "a file was added": (
        lambda root: (root / "model/chat_template.jinja").write_text("x"),
        "'chat_template.jinja' is not signed",
    ),
    "another key has signed": (lambda root: sign(root, "other"), "no key at hand has signed it"),
    "the statement was changed": (changed, "cannot be used"),
    "the signature is no document": (
        lambda root: (root / "model/model.sig").write_text("x"),
        "cannot be used",
    ),
    "a weight is a link": (lambda root: linked(root, WEIGHTS), "cannot be read"),
    "the signature is a link": (lambda root: linked(root, "model.sig"), "is a link"),
    "a directory is a link": (behind, "cannot be read"),
    "a signed name leads out": (
        lambda root: sign(root, **{"../x": "0" * 64}),
        "not below the model",
    ),
    "a signed name is absolute": (
        lambda root: sign(root, **{"/etc/passwd": "0" * 64}),
        "not below",
    ),
    "a signed file is a pipe": (
        lambda root: (sign(root, pipe="0" * 64), os.mkfifo(root / "model/pipe")),
        "'pipe' is no file",
    ),
}


@pytest.mark.parametrize(("attack", "reason"), ATTACKS.values(), ids=ATTACKS)
def test_a_model_that_is_not_as_signed_is_not_built(
    packager: Packager, model: Path, attack: Callable[[Path], object], reason: str
) -> None:
    attack(model.parent)

    done = packager(*BUILD, "--model-key", "publisher.pub", "--output", "oci:out", status=65)

    assert reason in done.err
    assert not (model.parent / "out").exists()


def test_a_signed_model_is_built_and_an_unsigned_one_is_not(
    packager: Packager, model: Path, tmp_path: Path
) -> None:
    wanted = (*BUILD, "--model-key", "publisher.pub", "--output", "oci:out")
    packager(*wanted, status=0)
    packager(*BUILD, "--model-key", "other.pub", "--model-key", "publisher.pub", "--output",
             "oci:both", status=0)  # fmt: skip
    (model / "model.sig").rename(tmp_path / "elsewhere.sig")
    assert packager(*wanted).status == 66
    packager(*wanted, "--model-signature", "elsewhere.sig", status=0)


def test_a_policy_names_who_signs_models(packager: Packager, model: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    rules = f'[[model]]\nnames = ["{tmp_path}/mod*"]\nkeys = ["{{key}}.pub"]\n'
    wanted = (*BUILD, "--policy", "policy.toml", "--output", "oci:out")

    policy.write_text(rules.format(key="publisher"))
    packager(*wanted, status=0)
    policy.write_text(rules.format(key="other"))
    assert "no key at hand has signed it" in packager(*wanted).err
    policy.write_text("")
    assert "no rule for models names it" in packager(*wanted).err


def test_a_tree_that_we_write_has_a_signature_beside_it(
    packager: Packager, model: Path, tmp_path: Path
) -> None:
    outputs = ("--output", "dir:tree", "--output", "oci:out")
    packager(*BUILD, *outputs, "--sign", "other.pem", status=0)
    key, signature = PublicKey(str(tmp_path / "other.pub")), tmp_path / "tree.model.sig"

    signed = check_directory(tmp_path / "tree", [key], signature)
    there = {path for path in (tmp_path / "tree").rglob("*") if path.is_file()}
    assert {tmp_path / "tree" / one for one in signed.files} == there
    flip(tmp_path / "tree/tokenizer.json")
    with raises_code("ModelNotSigned", match=r"'tokenizer.json' has other bytes"):
        check_directory(tmp_path / "tree", [key], signature)
