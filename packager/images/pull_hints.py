"""How nodes pull an image fastest: their settings for its layers, and how long the pull takes.

Settings are those of containerd, the SOCI snapshotter and the kubelet; each carries its source.

    seconds = largest of   bytes down / network
                           bytes out of layers / (workers that unpack x speed of one)
                           (2 x bytes down + bytes out) / (disk x `DISK_SHARE`)

A layer is written as a blob, read again and written as files: that is the third row, and what
KServe measured (kserve/kserve#5852: gp3 of 125 MiB/s, 14 GB in 443 s and 140 GB in 4,585 s) is
1.38 and 1.43 times what the disk's own speed gives, hence the share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from packager.core.units import MIB, counted, decimal

Packed = Literal["none", "gzip", "zstd"]

DISK_SHARE = 0.7
CONNECTION_BYTES_S = 87_500_000  # of one ranged read; S3 performance guidelines: 85 to 90 MB/s
# Of one worker.  Uncompressed layers are hashed again (containerd/containerd#8506: 20 GB in 60 s);
# gzip: 194 MB/s out of it, zstd: 0.85 GB/s and more (measured on weights, 2026-08).
UNPACK_BYTES_S: dict[Packed, float] = {"none": 333e6, "gzip": 194e6, "zstd": 850e6}
# What compressed layers of engines unpack to: awslabs/amazon-eks-ami#2452, 6 GB to 16 GB.
UNPACKED_RATIO = 2.6
LEAST_LAYER = 10_000_000  # smaller ones take no time that settings could save

FETCH_BUFFER = 8 * MIB
CHUNK = "16mb"
LEAST_CONNECTIONS, MOST_CONNECTIONS = 10, 50
MOST_UNPACKS = 32
DEFAULT_DOWNLOADS, DEFAULT_UNPACKS = 3, 1  # of containerd 2.3
EKS_DOWNLOADS, EKS_UNPACKS = 20, 12  # of `FastImagePull`
PULLS_AT_ONCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledLayer:
    """A layer as it travels."""

    digest: str
    size: int
    packed: Packed

    @property
    def unpacked(self) -> int:
        """Bytes of its tar; of a compressed one an estimate."""
        return self.size if self.packed == "none" else int(self.size * UNPACKED_RATIO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What a node unpacks images to."""

    name: str
    bytes_s: float


DISKS = (
    Disk(name="gp3, 125 MiB/s", bytes_s=125 * MIB),  # of a volume with default settings
    Disk(name="gp3, 1000 MiB/s", bytes_s=1000 * MIB),
    Disk(name="local NVMe, 3 GB/s", bytes_s=3e9),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullTime:
    """Predicted seconds of a pull, and what the node waits for."""

    disk: str
    by_default: float  # with containerd's own settings
    tuned: float  # with the settings of the hints
    bound: Literal["network", "unpacking", "disk"]  # of the tuned pull


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSetting:
    """One setting of a program that runs on nodes."""

    program: str
    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullHints:
    """Hints for nodes that will pull an image."""

    layers: int  # each digest once
    down_bytes: int
    out_bytes: int
    estimated: bool  # some layers are compressed, with an unknown unpacked size
    bandwidth_bytes_s: float
    connections: int
    unpacks: int
    times: tuple[PullTime, ...]
    settings: tuple[PullSetting, ...]
    files: tuple[tuple[str, str], ...]  # path on a node → what to write there
    notes: tuple[str, ...]


def packed_of(media_type: str) -> Packed:
    """Return how a layer is compressed, of its media type: OCI's, or Docker's."""
    if media_type.endswith(("+gzip", ".gzip")):
        return "gzip"
    return "zstd" if media_type.endswith("+zstd") else "none"


def make_hints(
    layers: Sequence[PulledLayer], bandwidth_bytes_s: float, disks: Sequence[Disk] = DISKS
) -> PullHints:
    """Return the settings for an image of these layers, and its times at a node's bandwidth."""
    once = tuple({layer.digest: layer for layer in layers}.values())
    large = [layer for layer in once if layer.size >= LEAST_LAYER]
    wanted = ceil(bandwidth_bytes_s / CONNECTION_BYTES_S)
    connections = min(max(wanted, LEAST_CONNECTIONS), MOST_CONNECTIONS)
    unpacks = min(max(len(large), 1), MOST_UNPACKS)
    down, out = sum(layer.size for layer in once), sum(layer.unpacked for layer in once)
    tuned = _Pull(connections, True, unpacks)
    times = []
    for disk in disks:
        parts = tuned.parts(once, bandwidth_bytes_s, disk)
        before = _BY_DEFAULT.parts(once, bandwidth_bytes_s, disk)
        times.append(
            PullTime(
                disk=disk.name,
                by_default=max(before.values()),
                tuned=max(parts.values()),
                bound=max(parts, key=lambda name: parts[name]),
            )
        )
    return PullHints(
        layers=len(once),
        down_bytes=down,
        out_bytes=out,
        estimated=any(layer.packed != "none" for layer in once),
        bandwidth_bytes_s=bandwidth_bytes_s,
        connections=connections,
        unpacks=unpacks,
        times=tuple(times),
        settings=_settings(connections, unpacks, len(large)),
        files=_files(connections, unpacks),
        notes=tuple(_notes(once, large, connections, unpacks)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PullParts:
    """A pull with containerd's own settings: until all bytes have come, and what it needs then."""

    down_s: float
    unpack_s: float


def pull_parts(
    layers: Sequence[PulledLayer], bandwidth_bytes_s: float, disk: Disk = DISKS[0]
) -> PullParts:
    """Return the predicted seconds of a pull; their sum is `by_default` of the hints."""
    once = tuple({layer.digest: layer for layer in layers}.values())
    parts = _BY_DEFAULT.parts(once, bandwidth_bytes_s, disk)
    return PullParts(
        down_s=parts["network"], unpack_s=max(0.0, max(parts.values()) - parts["network"])
    )


def pulled_bytes_s(disk: Disk = DISKS[0]) -> float:
    """Return how many bytes of an uncompressed image a node pulls and unpacks in a second.

    Valid where the disk is the bottleneck, as a volume with default settings is.
    """
    return disk.bytes_s * DISK_SHARE / 3


@dataclass(frozen=True, slots=True)
class _Pull:
    """How a node pulls."""

    connections: int
    ranged: bool  # several connections may share a layer
    unpacks: int

    def parts(
        self, layers: Sequence[PulledLayer], bandwidth: float, disk: Disk
    ) -> dict[Literal["network", "unpacking", "disk"], float]:
        """Return the seconds that each part takes by itself."""
        down, out = sum(one.size for one in layers), sum(one.unpacked for one in layers)
        unpacking = [one.unpacked / UNPACK_BYTES_S[one.packed] for one in layers]
        network = down / min(bandwidth, self.connections * CONNECTION_BYTES_S)
        if not self.ranged:  # the largest layer comes over one connection
            largest = max((one.size for one in layers), default=0)
            network = max(network, largest / min(bandwidth, CONNECTION_BYTES_S))
        return {
            "network": network,
            "unpacking": max(sum(unpacking) / self.unpacks, max(unpacking, default=0.0)),
            "disk": (2 * down + out) / (disk.bytes_s * DISK_SHARE),
        }


_BY_DEFAULT = _Pull(DEFAULT_DOWNLOADS, False, DEFAULT_UNPACKS)

_CONTAINERD = "containerd docs/cri/config.md and plugins/transfer (2026-08-22)"
_SOCI = "soci-snapshotter docs/parallel-mode.md (v0.15)"
_NODEADM = "amazon-eks-ami nodeadm/internal/containerd/snapshotter (2026-08)"
_KUBELET = "kubelet.config.k8s.io/v1beta1 KubeletConfiguration (1.37)"


def _settings(connections: int, unpacks: int, large: int) -> tuple[PullSetting, ...]:
    local = "plugins.'io.containerd.transfer.v1.local'"
    soci = "pull_modes.parallel_pull_unpack"
    reach = f"{connections} connections of about {decimal(CONNECTION_BYTES_S)}/s"
    many = f"{counted(large, 'layer')} of {decimal(LEAST_LAYER)} and more"
    rows = (
        ("containerd", f"{local}.max_concurrent_downloads", str(connections), reach, _CONTAINERD),
        (
            "containerd",
            f"{local}.concurrent_layer_fetch_buffer",
            str(FETCH_BUFFER),
            "parts of a layer come over several connections; 2.1 and newer, 0 by default",
            _CONTAINERD,
        ),
        (
            "containerd",
            f"{local}.max_concurrent_unpacks",
            str(unpacks),
            f"{many}; 1 by default; 2.2.3 and newer: before, files that a layer deletes came back",
            "containerd/containerd#8881, #13030",
        ),
        (
            "containerd",
            "plugins.'io.containerd.cri.v1.images'.discard_unpacked_layers",
            "false",
            "true, as EKS has it, or another max_concurrent_downloads beside it switches back to "
            "pulling without the transfer plugin, and so to unpacking one by one",
            _CONTAINERD,
        ),
        ("SOCI", f"{soci}.max_concurrent_downloads_per_image", str(connections), reach, _SOCI),
        ("SOCI", f"{soci}.concurrent_download_chunk_size", CHUNK, "ranged reads; for ECR", _SOCI),
        ("SOCI", f"{soci}.max_concurrent_unpacks_per_image", str(unpacks), many, _SOCI),
        (
            "SOCI",
            f"{soci}.discard_unpacked_layers",
            "true",
            "half the disk; false where nodes give layers to each other",
            _SOCI,
        ),
        (
            "EKS AL2023",
            "spec.featureGates.FastImagePull",
            "true",
            f"nodeadm sets up SOCI: {EKS_DOWNLOADS} downloads, {EKS_UNPACKS} unpacks; left out "
            "below 4 vCPU or 7 GiB",
            _NODEADM,
        ),
        (
            "kubelet",
            "serializeImagePulls",
            "false",
            "other pods' images do not wait for this one",
            _KUBELET,
        ),
        (
            "kubelet",
            "maxParallelImagePulls",
            str(PULLS_AT_ONCE),
            "more would share the same disk",
            _KUBELET,
        ),
    )
    return tuple(
        PullSetting(program=program, name=name, value=value, why=why, source=source)
        for program, name, value, why, source in rows
    )


def _files(connections: int, unpacks: int) -> tuple[tuple[str, str], ...]:
    containerd = (
        "version = 3\n"
        "[plugins.'io.containerd.transfer.v1.local']\n"
        f"  max_concurrent_downloads = {connections}\n"
        f"  concurrent_layer_fetch_buffer = {FETCH_BUFFER}\n"
        f"  max_concurrent_unpacks = {unpacks}\n"
        "[plugins.'io.containerd.cri.v1.images']\n"
        "  discard_unpacked_layers = false\n"
    )
    soci = (
        "[pull_modes.parallel_pull_unpack]\n"
        "  enable = true\n"
        f"  max_concurrent_downloads_per_image = {connections}\n"
        f'  concurrent_download_chunk_size = "{CHUNK}"\n'
        f"  max_concurrent_unpacks_per_image = {unpacks}\n"
        "  discard_unpacked_layers = true\n"
    )
    eks = (
        "apiVersion: node.eks.aws/v1alpha1\n"
        "kind: NodeConfig\n"
        "spec:\n"
        "  featureGates:\n"
        "    FastImagePull: true\n"
        "  kubelet:\n"
        "    config:\n"
        "      serializeImagePulls: false\n"
        f"      maxParallelImagePulls: {PULLS_AT_ONCE}\n"
    )
    return (
        ("/etc/containerd/conf.d/pull.toml", containerd),
        ("/etc/soci-snapshotter-grpc/config.toml", soci),
        ("user data of EKS AL2023 nodes", eks),
    )


def _notes(
    layers: Sequence[PulledLayer], large: Sequence[PulledLayer], connections: int, unpacks: int
) -> list[str]:
    notes = []
    total = sum(layer.size for layer in layers)
    largest = max(layers, key=lambda layer: layer.size, default=None)
    if largest is not None and len(large) > 1 and largest.size > total / 2:
        notes.append(
            f"one layer has {decimal(largest.size)} of {decimal(total)}, and is unpacked by one "
            "worker: build with --max-layer-size for more and smaller ones"
        )
    packed = sum(layer.size for layer in layers if layer.packed == "gzip")
    if packed:
        notes.append(
            f"{decimal(packed)} are gzip, which unpacks at {decimal(UNPACK_BYTES_S['gzip'])}/s a "
            "worker; SOCI's decompress_streams uses unpigz"
        )
    if connections > EKS_DOWNLOADS or unpacks > EKS_UNPACKS:
        notes.append(
            f"FastImagePull stays at {EKS_DOWNLOADS} downloads and {EKS_UNPACKS} unpacks, and "
            "nodeadm writes its file anew at each boot"
        )
    return notes
