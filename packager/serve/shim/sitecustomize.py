"""Sends AWS's services to where `AWS_ENDPOINT_URL` says, also where an SDK names an address.

Python runs this when it starts in an environment of `packager api env`.  SageMaker's SDKs hand
boto3 the address of AWS's own STS, which no variable overrides: here an address of AWS is none.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_HERE = Path(__file__).resolve().parent
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


class _Botocore(importlib.abc.MetaPathFinder):
    """Changes botocore when, and if, it is imported."""

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """Find `botocore.session` once, to be changed when it is loaded."""
        if fullname != "botocore.session":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                _change(module.Session)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _change(session: Any) -> None:
    plain = session.create_client

    def create_client(self: Any, *given: Any, **named: Any) -> Any:
        host = urlsplit(named.get("endpoint_url") or "").hostname or ""
        if host.endswith(_AWS):
            named["endpoint_url"] = None
        return plain(self, *given, **named)

    session.create_client = create_client


if os.environ.get("AWS_ENDPOINT_URL"):
    sys.meta_path.insert(0, _Botocore())

# Python runs one module of this name: another one on the path is run from here.
_others = [one for one in sys.path if Path(one).resolve() != _HERE]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
