"""A Ray cluster that this machine is a part of: joining it, its nodes, its head.

Ray waits for minutes and reports errors at length; here joining fails within seconds, with an
explanation.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from artifact_cache.distribution import install_command
from packager.core.errors import Unavailable, UsageError
from packager.core.warmup import Node

TYPE = "accelerator_type:"
HEAD_CHECK_S = 2.0
HEAD_PATIENCE = 5  # checks in a row that fail
CONNECT_S = 5.0


def cluster_lost(address: str) -> Unavailable:
    """Return an error: the head does not answer any more."""
    return Unavailable(
        f"the Ray cluster at {address!r} does not answer any more",
        hint="start it, and run the same command again: it does what is missing",
        code="ClusterLost",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A live node: its id for the scheduler, and its resources."""

    id: str
    node: Node


class Head:
    """The head process of the cluster, polled now and then."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._checked, self._silent = time.monotonic(), 0

    @property
    def is_silent(self) -> bool:
        """Whether it did not answer the last time."""
        return self._silent > 0

    def check(self) -> None:
        """Check that the head node responds; raises `cluster_lost` after a while of silence."""
        now = time.monotonic()
        if now - self._checked < HEAD_CHECK_S:
            return
        self._checked = now
        try:
            connect(self._address, HEAD_CHECK_S)
            self._silent = 0
        except OSError as error:
            self._silent += 1
            if self._silent >= HEAD_PATIENCE:
                raise cluster_lost(self._address) from error


def join_cluster(address: str, environment: Mapping[str, str]) -> tuple[Any, Head]:
    """Join the cluster at `address`, else at RAY_ADDRESS, else one that runs here.

    Returns Ray's module and the head.  Raises `UsageError` and `Unavailable`.
    """
    ray = import_ray()
    place = address or environment.get("RAY_ADDRESS", "auto")
    _refuse_client(place)
    if place != "auto":
        try:
            connect(place, CONNECT_S)  # Ray itself would try for a minute and a half
        except ValueError as error:
            raise UsageError(
                f"the address {place!r} of a Ray cluster is not HOST:PORT",
                hint="its port is 6379 unless the head was started with another",
            ) from error
        except OSError as error:
            reason = (error.strerror or str(error) or "no answer").lower()
            raise Unavailable(
                f"no Ray cluster answers at {place!r}: {reason}",
                hint="`ray status` on its head shows whether it runs; give HOST:PORT of the "
                "head, whose port is 6379 unless it was started with another",
            ) from error
    try:
        ray.init(
            address=place,
            log_to_driver=False,
            configure_logging=False,
            logging_level="error",
            ignore_reinit_error=True,
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise _refused(place, error) from error
    return ray, Head(ray.get_runtime_context().gcs_address)


def import_ray() -> Any:
    """Return the module, or raise `UsageError` where it is not installed."""
    # Ray prints messages of its raylets on our stdout, which is for results: silence them.
    os.environ["RAY_DEDUP_LOGS"] = "1"
    os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "."
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(
            "this installation of packager does not speak to Ray",
            hint=install_command("ray", "ray"),
        ) from error
    return ray


def living_nodes(ray: Any) -> tuple[ClusterNode, ...]:
    """Return the live nodes, with the resources that they report."""
    return tuple(
        ClusterNode(id=one["NodeID"], node=_node(one["NodeManagerAddress"], one["Resources"]))
        for one in ray.nodes()
        if one["Alive"]
    )


def connect(address: str, timeout_s: float) -> None:
    """Connect to HOST:PORT once. Raises OSError, or ValueError for an invalid address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("it is not HOST:PORT")
    socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()


def lost_reason(error: Exception) -> str:
    """Return the first line of Ray's error, which may be a page."""
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0] if words else 'no reason given'}"


def _refuse_client(place: str) -> None:
    if place.startswith("ray://"):
        raise UsageError(
            f"{place!r} is the address of a Ray Client server, and packager joins the cluster",
            hint="make this machine a node without processors: `ray start --address HOST:6379 "
            "--num-cpus 0`, and give --address HOST:6379",
        )


def _refused(place: str, error: Exception) -> Unavailable:
    text = str(error)
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    if "Version mismatch" in text:
        said = " ".join(text.split())
        return Unavailable(
            f"the Ray cluster at {place!r} has other versions: {said[:300]}",
            hint="Ray and Python must be the same here and on every node",
        )
    if "No node info found" in text or "No node found" in text:
        return Unavailable(
            f"this machine is not a node of the Ray cluster at {place!r}",
            hint=f"`ray start --address {place} --num-cpus 0` makes it one that runs nothing",
        )
    return Unavailable(
        f"cannot join the Ray cluster at {place!r}: {first}",
        hint="`ray status` shows whether it runs; its versions of Ray and Python "
        "must be those here",
    )


def _node(name: str, has: Mapping[str, float]) -> Node:
    device = next((key.removeprefix(TYPE) for key in has if key.startswith(TYPE)), "")
    cores = has.get("neuron_cores", 0.0)
    gpus = has.get("GPU", 0.0)
    return Node(
        name=name,
        cpus=has.get("CPU", 0.0),
        memory_bytes=has.get("memory", 0.0),
        accelerator="neuron" if cores else "nvidia" if gpus else "cpu",
        device=device,
        devices=cores or gpus,
    )
