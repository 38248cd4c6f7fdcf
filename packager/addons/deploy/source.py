"""A deployment made from an image's build record, its own documents, or both.

Labels and attached records are unproven claims: only fields that a platform needs are read, and the
image is deployed by its digest.  Missing values are None, or an estimate with a finding.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packager.addons.deploy.servers import drain_of, meeting_of, metrics_of
from packager.catalog.drivers import amis, cuda_drivers
from packager.core.deployment import BAKED, DeployedWeights, Deployment
from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.record import BuildRecord, RecordedRuntime, RecordedTree
from packager.core.references import parse_bucket_place
from packager.core.serving import MODEL_DIR, MOUNTED_MODEL_DIR, SERVING_DIR
from packager.core.stopping import PLATFORM_GRACE_S
from packager.core.units import GIB
from packager.estimate.performance.startup import slowest_start_s
from packager.images.pull_hints import pulled_bytes_s
from packager.images.stored import StoredImage
from packager.images.views import model_words

INSTANCE_LABEL = "dev.packager.instance"
FAMILY_LABEL = "dev.packager.family"
TITLE_LABEL = "org.opencontainers.image.title"
LONGEST_S = 86_400  # of a start or an end, that anybody may state
LONGEST_NAME = 52  # characters: platforms append words of their own

# Beside the weights, which are mapped and can be dropped: interpreters and libraries of the
# server's processes.  An estimate; no engine publishes one.
SERVER_BYTES = 4 * GIB
PROCESS_BYTES = 2 * GIB  # of each device's process
SHM_BYTES = GIB  # for each device; engines' processes need more than the 64 MB that Docker gives
SCRATCH_BYTES = 8 * GIB  # logs and what engines compile at their start

_SPLIT = re.compile(
    r"TP (\d{1,4})(?: PP (\d{1,4}))?(?: x (\d{1,4}) copies)?(?:.*, (\d{1,3}) nodes)?"
)
_CACHES = (
    *("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
    *("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    *("FLASHINFER_WORKSPACE_BASE", "DJL_CACHE_DIR"),
)
_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,200}", re.ASCII)
_ROLES_OF_MODEL = ("weights", "draft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a deployment is made of; one of `record` and `image` is there."""

    reference: str  # as it was named
    pulled: str = ""  # as nodes pull it: a registry's address; "" where it is in none
    record: BuildRecord | None = None
    image: StoredImage | None = None


def not_deployable(reference: str) -> UsageError:
    """Return an error: an image without a known instance type."""
    return UsageError(
        f"{reference!r} does not say which instance it was built for",
        hint="name it with --instance; images that packager builds say it by themselves",
        code="NotDeployable",
    )


def instance_name(subject: Subject) -> str:
    """Return the instance type that the image was planned for; raise if unknown."""
    if subject.record is not None:
        return subject.record.request.instance
    labels = subject.image.labels if subject.image is not None else {}
    if not labels.get(INSTANCE_LABEL):
        raise not_deployable(subject.reference)
    return labels[INSTANCE_LABEL]


def make_deployment(
    subject: Subject,
    instance: Instance,
    *,
    name: str = "",
    weights_uri: str = "",
    bytes_s: float | None = None,
) -> Deployment:
    """Return the deployment of an image on an instance type.

    `weights_uri` is the mounted tree, where the record names none; `bytes_s` the speed at which
    a node pulls and unpacks, measured by the user.
    """
    record, image = subject.record, subject.image
    runtime = _believable((record.runtime if record else None) or RecordedRuntime())
    said: Mapping[str, Any] = image.record if image is not None else {}
    labels = image.labels if image is not None else {}
    family = record.family if record else labels.get(FAMILY_LABEL, "")
    engine, version = _engine(record, said)
    served = record.served_name if record else labels.get(TITLE_LABEL, "")
    sizes = _sizes(subject)
    cuda = runtime.cuda or _cuda(image)
    reports = metrics_of(family, engine, _arguments(image))
    devices, nodes, guess = _devices(subject, instance)
    config = image.runtime if image is not None else {}
    made = Deployment(
        name=dns_label(name or served or "model"),
        image=subject.pulled or subject.reference,
        digest=image.digest if image is not None else record.digest if record else "",
        media_type=_media_type(subject),
        platform=str(image.platform) if image else record.base.platform if record else "",
        family=family,
        engine=engine,
        engine_version=version,
        served_name=served,
        model=model_words(record.model.model_dump() if record else _mapping(said.get("model"))),
        max_batch=_batch(record, said),
        instance=instance,
        devices=devices,
        nodes=nodes,
        health_path=runtime.health_path or "/ping",
        start_period_s=runtime.start_period_s,
        image_bytes=sizes[0],
        model_bytes=sizes[1],
        shm_bytes=SHM_BYTES * max(devices, 1),
        scratch_bytes=SCRATCH_BYTES,
        drain_s=runtime.drain_s,
        grace_s=runtime.grace_s,
        inference_ami=runtime.inference_ami or _ami(cuda),
        cuda=cuda,
        least_driver=runtime.least_driver or _driver(cuda),
        metrics_path=reports.metrics,
        queue_metric=reports.queue,
        user=str(config.get("User") or ""),
        adapters=_adapters(record, said),
        read_only_root=image is not None and not _has_compiled(image),
        writable=_writable(image),
        home=_home(image),
        findings=guess,
    )
    made = _with_drain(made, image)
    if nodes > 1:
        made = _with_start(made, image)
    made = _with_tree(made, record, said, weights_uri)
    return _with_estimates(made, bytes_s)


def _media_type(subject: Subject) -> str:
    """Return the type of the manifest that nodes pull; "" where only another copy was read."""
    image = subject.image
    is_read = image is not None and (not subject.pulled or image.digest in subject.pulled)
    return image.sealed.named.media_type if image is not None and is_read else ""


def _believable(runtime: RecordedRuntime) -> RecordedRuntime:
    """Return what a record says of the host, without times that cannot be: it is anyone's."""
    times = ("drain_s", "grace_s", "start_period_s")
    wrong: dict[str, Any] = {
        name: None
        for name in times
        if (found := getattr(runtime, name)) is not None and not 0 <= found <= LONGEST_S
    }
    if not _PATH.fullmatch(runtime.health_path):
        wrong["health_path"] = ""
    return runtime.model_copy(update=wrong)


def dns_label(text: str) -> str:
    """Return a text as a DNS label: what every platform takes as a name.

    The end of a long one, and of one with letters that no label has, is a digest of all of it.
    """
    last = text.rpartition("/")[2].lower()
    plain = re.sub(r"[^a-z0-9]+", "-", last).strip("-")
    is_lost = not last.isascii()
    plain = plain or "model"
    plain = plain if plain[0].isalpha() else f"m-{plain}"
    if len(plain) <= LONGEST_NAME and not is_lost:
        return plain
    # Without it two names would be one deployment, and each an update of the other.
    whole = (last if is_lost else plain).encode(errors="surrogatepass")
    end = hashlib.sha256(whole).hexdigest()[:6]
    return f"{plain[: LONGEST_NAME - 7].rstrip('-')}-{end}"


def _engine(record: BuildRecord | None, said: Mapping[str, Any]) -> tuple[str, str]:
    if record is not None:
        return record.engine, record.engine_version
    engine, _, version = str(said.get("engine") or "").partition(" ")
    return engine, version


def _batch(record: BuildRecord | None, said: Mapping[str, Any]) -> int | None:
    shape = record.shape if record is not None else said.get("shape")
    found = shape.get("max_batch") if isinstance(shape, dict) else None
    return found if isinstance(found, int) and found > 0 else None


def _mapping(found: object) -> Mapping[str, Any]:
    """A mapping of an untrusted document; empty if it has another type."""
    return found if isinstance(found, dict) else {}


def _adapters(record: BuildRecord | None, said: Mapping[str, Any]) -> Mapping[str, tuple[str, int]]:
    """Return the adapters that an image serves: where they are, and their ranks."""
    if record is not None:
        return {one.name: (one.directory, one.rank) for one in record.adapters if one.directory}
    found: dict[str, tuple[str, int]] = {}
    for one in _list(said.get("adapters")):
        place = one.get("directory") if isinstance(one, dict) else None
        if isinstance(one, dict) and isinstance(place, str) and isinstance(one.get("rank"), int):
            found[str(one.get("name"))] = place, one["rank"]
    return found


def _sizes(subject: Subject) -> tuple[int | None, int | None]:
    """Return the bytes of an image and of the weights in it."""
    if subject.image is not None:
        layers = [(layer.role, layer.size) for layer in subject.image.layers]
    elif subject.record is not None and subject.record.images:
        layers = [(layer.role, layer.size) for layer in subject.record.layers]
    else:
        return None, None
    model = sum(size for role, size in layers if role in _ROLES_OF_MODEL)
    if subject.image is None:  # a record's layers are ours: the base's are not among them
        return None, model or None
    return sum(size for _, size in layers), model or None


def _devices(subject: Subject, instance: Instance) -> tuple[int, int, tuple[Finding, ...]]:
    """Return the devices of one replica on each node, its nodes, and what was assumed."""
    if instance.kind == "cpu":
        return 0, 1, ()
    record, image = subject.record, subject.image
    said = image.record if image is not None else {}
    if found := _SPLIT.match(str(said.get("split") or "")):
        tp, pp, copies, nodes = (int(part or 1) for part in found.groups())
        return max(tp * pp * copies // max(nodes, 1), 1), max(nodes, 1), ()
    degree = said.get("tp_degree")
    if isinstance(degree, int) and degree > 0:  # without `split` TP is the only one
        return degree, 1, ()
    if record is not None:
        nodes = record.request.nodes or 1
        of_server = record.tp_degree * (record.request.pp_degree or 1)
        if record.request.dp_degree is not None or of_server >= instance.devices * nodes:
            return max(of_server * (record.request.dp_degree or 1) // nodes, 1), nodes, ()
    what = f"nobody says how many devices it uses: all {instance.devices} of {instance.name}"
    hint = "name the image instead of its record: its labels say it"
    return instance.devices, 1, (Finding("note", "deploy-devices-assumed", what, hint),)


def _with_tree(
    made: Deployment, record: BuildRecord | None, said: Mapping[str, Any], uri: str
) -> Deployment:
    """Return the deployment with the tree that holds its weights, where they are not baked."""
    tree = _tree(record)
    asked = said.get("request")
    mounted = isinstance(asked, dict) and asked.get("weights") == "mounted"
    mounted = mounted or (record is not None and record.request.weights == "mounted")
    if uri and parse_bucket_place(uri) is None:
        raise UsageError(
            f"{uri[:80]!r} is not a place in a bucket", hint="write s3://BUCKET/PREFIX"
        )
    if tree is not None and not (record and record.images):
        place = uri or (tree.name if _in_bucket(tree) else "")
        weights = DeployedWeights(kind="mounted", uri=_prefix(place))
        return replace(
            made,
            image=tree.image or made.image,
            digest="",
            env=dict(tree.env),
            weights=weights,
            model_bytes=tree.size,
            image_bytes=None,
        )
    if not mounted:
        return replace(made, weights=BAKED)
    return replace(
        made,
        weights=DeployedWeights(kind="mounted", uri=_prefix(uri)),
        env=dict(tree.env) if tree is not None else {},
        model_bytes=tree.size if tree is not None else made.model_bytes,
    )


def _tree(record: BuildRecord | None) -> RecordedTree | None:
    """Return a record's tree, one of a bucket first: nodes can read it."""
    trees = record.trees if record is not None else ()
    return next(filter(_in_bucket, trees), next(iter(trees), None))


def _in_bucket(tree: RecordedTree) -> bool:
    return parse_bucket_place(tree.name) is not None


def _prefix(uri: str) -> str:
    return f"{uri.rstrip('/')}/" if uri else ""


def _with_estimates(made: Deployment, bytes_s: float | None) -> Deployment:
    """Return the deployment with the times and amounts that follow from others, and notes."""
    start_s = made.start_period_s
    if start_s is None and made.model_bytes:
        start_s = slowest_start_s(made.model_bytes)
    pull_s = made.image_bytes / (bytes_s or pulled_bytes_s()) if made.image_bytes else None
    if made.devices:
        memory: int | None = SERVER_BYTES + PROCESS_BYTES * made.devices + made.shm_bytes
    else:
        memory = SERVER_BYTES + 2 * made.model_bytes if made.model_bytes else None
    made = replace(made, start_period_s=start_s, load_s=start_s, pull_s=pull_s, memory_bytes=memory)
    return replace(made, findings=(*made.findings, *_unknown(made)))


def _unknown(made: Deployment) -> Iterator[Finding]:
    if made.grace_s is None:
        what = f"nobody says how long running requests take to end: {PLATFORM_GRACE_S} s are given"
        yield Finding("note", "deploy-grace-unknown", what, "deploy from the build record")
    if made.load_s is None:
        what = "the size of the weights is not known, nor how long the server takes to start"
        yield Finding("warning", "deploy-load-unknown", what, "deploy from the build record")
    if made.instance.kind == "nvidia" and not made.cuda:
        what = "nobody says which CUDA the image has, nor which driver it needs"
        yield Finding("warning", "deploy-cuda-unknown", what, "deploy from the build record")


def _with_start(made: Deployment, image: StoredImage | None) -> Deployment:
    """Return a deployment on several machines with how its server is given options more.

    Our launcher appends words to its command; SageMaker's images make words of variables.
    """
    words = _arguments(image)
    if any(word.startswith(f"{SERVING_DIR}/") for word in words):
        return replace(made, command=words)
    meeting = meeting_of(made.engine)
    prefix = meeting.variables if meeting is not None else ""
    has = prefix and any(name.startswith(prefix) for name in image_env(image))
    return replace(made, variables=prefix if has else "")


def _with_drain(made: Deployment, image: StoredImage | None) -> Deployment:
    """Return a deployment that sets its engine's time for running requests.

    Variables count where the image has them, or its record says that the engine listens; words
    where our launcher, which hands them on, starts an engine that drains.
    """
    row = drain_of(made.engine)
    if row is None:
        return made
    is_launched = any(word.startswith(f"{SERVING_DIR}/") for word in _arguments(image))
    if is_launched:
        return replace(made, drain_option=row.option) if made.drain_s else made
    env = image_env(image)
    has = row.variable in env or (not row.option and bool(made.drain_s))
    return replace(made, drain_variable=row.variable) if has else made


def _arguments(image: StoredImage | None) -> tuple[str, ...]:
    config = image.runtime if image is not None else {}
    return tuple(str(word) for name in ("Entrypoint", "Cmd") for word in _list(config.get(name)))


def image_env(image: StoredImage | None) -> dict[str, str]:
    """Return the variables of an image's configuration, which are anyone's."""
    pairs = _list(image.runtime.get("Env")) if image is not None else ()
    found = (str(pair).partition("=") for pair in pairs)
    return {name: value for name, _, value in found}


def _list(found: object) -> Sequence[object]:
    """A list of an untrusted document; empty if it has another type."""
    return found if isinstance(found, list) else ()


def _writable(image: StoredImage | None) -> tuple[str, ...]:
    """Return the directories that a server writes to, none inside another."""
    env = image_env(image)
    named = {env[name] for name in _CACHES if env.get(name, "").startswith("/")}
    named = {one.rstrip("/") for one in named if _can_be_mounted(one.rstrip("/"))}
    found: list[str] = []
    for one in sorted({"/tmp", *named} - {""}):
        if not any(one.startswith(f"{outer}/") for outer in found):
            found.append(one)
    return tuple(found)


def _home(image: StoredImage | None) -> str:
    found = image_env(image).get("HOME", "")
    return found if found.startswith("/") and _can_be_mounted(found.rstrip("/")) else ""


def _can_be_mounted(path: str) -> bool:
    """Return whether an empty directory may stand there: it hides what the image has below it."""
    kept = (MODEL_DIR, SERVING_DIR, MOUNTED_MODEL_DIR, "/dev", "/proc", "/sys")
    hides = any(f"{one}/".startswith(f"{path}/") for one in kept)
    inside = any(path.startswith(f"{one}/") for one in kept)
    return not (hides or inside or ":" in path or ".." in path.split("/"))


def _has_compiled(image: StoredImage) -> bool:
    return any(layer.role == "compiled" for layer in image.layers)


def _cuda(image: StoredImage | None) -> str:
    """Return the CUDA version that NVIDIA's base images state, `13.0`."""
    found = re.match(r"(\d{2})\.(\d{1,2})", image_env(image).get("CUDA_VERSION", ""))
    return f"{found[1]}.{found[2]}" if found else ""


def _ami(cuda: str) -> str:
    major = cuda.partition(".")[0]
    return next((row.name for row in amis() if major and row.cuda.startswith(f"{major}.")), "")


def _driver(cuda: str) -> str:
    major = cuda.partition(".")[0]
    return next((row.least for row in cuda_drivers() if str(row.major) == major), "")
