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
from urllib.parse import quote, urlsplit

_HERE = Path(__file__).resolve().parent
_JUMPSTART = "jumpstart-cache-prod-"  # begins a bucket's name; the region follows
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
        client = plain(self, *given, **named)
        if client.meta.service_model.service_name == "s3":
            client.meta.events.register("provide-client-params.s3", _keep_bucket)
            client.meta.events.register_first("before-sign.s3", _redirect)
        return client

    session.create_client = create_client


def _keep_bucket(params: Any, context: Any, **_: Any) -> None:
    context["packager"] = str(params.get("Bucket", "")), str(params.get("Key", ""))


def _redirect(request: Any, **_: Any) -> None:
    """Ask the server for objects of AWS's JumpStart bucket."""
    bucket, key = request.context.get("packager", ("", ""))
    if bucket.startswith(_JUMPSTART):
        request.url = f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}/{quote(key)}"


if os.environ.get("AWS_ENDPOINT_URL"):
    sys.meta_path.insert(0, _Botocore())

# Python runs one module of this name: another one on the path is run from here.
_others = [one for one in sys.path if Path(one).resolve() != _HERE]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
