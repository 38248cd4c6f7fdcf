"""Certificates that nobody vouches for."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import need
from tests.support.processes import run_program


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1; return its file, and that of its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    name = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    run_program(need("openssl"), "req", *kind, *name, "-keyout", key, "-out", certificate)
    return certificate, key
