"""Only what a trusted key vouches for is used, and nothing of the rest is."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from artifact_cache.errors import UnusableKeys
from artifact_cache.trust import load_signer
from tests.support.cache_entries import CHECKPOINT, Build
from tests.support.processes import run_program, run_python
from tests.unit.artifact_cache.test_trust import Keys, strict


def test_openssl_agrees_with_the_signature(tmp_path: Path, root: Path) -> None:
    """A second implementation, over the bytes as they lie in the store."""
    keys = Keys(tmp_path / "keys", "ecdsa-p256")
    strict(root, keys).get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    envelope = json.loads(next(root.glob("ac/*/*/*.json")).read_bytes())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    (tmp_path / "signed").write_bytes(
        b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    )
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    (tmp_path / "public.pem").write_bytes(keys.public_pem)

    words = ("dgst", "-sha256", "-verify", "public.pem", "-signature", "sig", "signed")
    assert run_program("openssl", *words, cwd=tmp_path).stdout == "Verified OK\n"


def test_other_algorithms_are_refused(tmp_path: Path) -> None:
    key = tmp_path / "rsa.pem"
    words = ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384")
    key.write_text(run_program("openssl", *words).stdout)
    key.chmod(0o600)
    with pytest.raises(UnusableKeys, match="neither Ed25519 nor"):
        load_signer(key)


def test_without_signatures_no_cryptography_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from artifact_cache.cache import open_local\n"
        "from tests.support.cache_entries import CHECKPOINT, Build\n"
        "open_local(pathlib.Path(sys.argv[1])).get_or_build(\n"
        "    CHECKPOINT, Build(), pathlib.Path(sys.argv[2]))\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    run_python("-c", code, tmp_path / "c", tmp_path / "a")
