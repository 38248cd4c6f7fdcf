"""Values that complete an argument: from the catalog, the disk and the user's own files.

No network, engine or code of a plug-in is used. A file that cannot be read yields no candidates: a
shell cannot show an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from packager.cli.completion.shells import PART
from packager.core.errors import PackagerError

MOST_ENTRIES = 2000  # of a directory, or keys of a cache
KEY_DIGITS = 12

# What a value is, by how help calls it; a name not here has nothing to complete.
BY_METAVAR = {
    "COMPILER": "compiler",
    "DATA": "data",
    "DESTINATION...": "output",
    "DIR": "directory",
    "DRAFT": "draft",
    "FAMILY[:VERSION]": "family",
    "FILE": "file",
    "FILE...": "file",
    "IMAGE": "image",
    "IMAGE|URL": "image",
    "IMAGE|URL...": "image",
    "KEY": "key",
    "KEY...": "key",
    "KIND": "key-kind",
    "METHOD[,OPTION]": "quantize",
    "MODEL": "model",
    "[MODEL|@TARGET]": "model",
    "DIR|FILE": "file",
    "NAME|IN:OUT[:N]|FILE": "workload",
    "NAME|IN:OUT|FILE": "workload",
    "NAME|KEY": "key",
    "OUT": "output",
    "PLAIN": "image",
    "PLAN": "file",
    "REGION": "region",
    "SOURCE...": "file",
    "TYPE": "instance",
}
# Arguments without a name of their own in help, by what the code calls them.
BY_NAME = {
    "code": "finding",
    "file": "file",
    "first": "image",
    "image": "image",
    "key": "key",
    "model": "model",
    "second": "image",
    "source": "image",
}
# Where one word means another thing.
BY_PLACE = {
    ("build", "base"): "base",
    ("cache explain", "base"): "base",
    ("build", "container_version"): "container",
    ("cache explain", "container_version"): "container",
    ("plan", "container_version"): "container",
    ("cache import", "model"): "",
    ("draft measure", "server"): "",
    ("draft measure", "plain"): "",
    ("smoke", "image"): "",
    ("tools install", "name"): "tool",
    ("tools path", "name"): "tool",
    ("tools rm", "name"): "tool",
    ("warm render kubernetes", "image"): "",
    ("warm tool", "name"): "tool",
}
# Beginnings of addresses; what follows is a path for those of layouts.
OUTPUTS = {"oci:": "a directory, as an OCI layout", "docker:": "a Docker Engine"}
MODELS = {"hf://": "streamed from the hub", "s3://": "streamed from a bucket"}
DRAFTS = {
    "auto": "the best that is known",
    "none": "",
    "mtp": "the model's own heads",
    "ngram": "n-grams of the prompt",
    "ngram_gpu": "n-grams, on the GPU",
    "suffix": "suffixes of earlier answers",
    **dict.fromkeys(("eagle:", "eagle3:", "peagle:", "dflash:", "medusa:"), "heads"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A value to complete: its typed beginning, and the command line before it."""

    text: str
    command: str  # such as `cache ls`
    options: Mapping[str, Any]  # by the names of the command's parameters


Items = Iterable[CompletionItem[Any]]


class CompletedType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """The type of a parameter while a line is completed: any text is taken for its value."""

    name = "text"

    def __init__(self, inner: click.ParamType[Any]) -> None:
        self._inner = inner

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the text as it is."""
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Return the values that may be meant; those that begin otherwise are left out later."""
        place = ctx.command_path.partition(" ")[2]
        kind = _kind_of(place, param, self._inner)
        if kind in KINDS:
            return list(KINDS[kind](Question(text=incomplete, command=place, options=ctx.params)))
        return self._inner.shell_complete(ctx, param, incomplete)


def complete_values(command: click.Command) -> None:
    """Make the type of each parameter of a command, and of those below it, a `CompletedType`."""
    for parameter in command.params:
        is_flag = isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)
        if not is_flag and not parameter.type.is_composite:
            parameter.type = CompletedType(parameter.type)
    for below in getattr(command, "commands", {}).values():
        complete_values(below)


def _kind_of(place: str, param: click.Parameter, inner: click.ParamType[Any]) -> str:
    name = param.name or ""
    if (place, name) in BY_PLACE:
        return BY_PLACE[place, name]
    if isinstance(inner, click.Choice):
        return "family" if name == "family" else ""
    if isinstance(inner, click.Path) and not inner.file_okay:
        return "directory"
    if param.metavar in BY_METAVAR:
        return BY_METAVAR[param.metavar]
    if isinstance(param, click.Argument) and name in BY_NAME:
        return BY_NAME[name]
    return "file" if isinstance(inner, click.Path | click.File) else ""


def paths(text: str, *, files: bool = True) -> Iterator[CompletionItem[Any]]:
    """Yield files and directories whose names begin with the typed text."""
    for name, entry in _entries(text):
        if entry.is_dir():
            yield CompletionItem(f"{name}/", PART)
        elif files:
            yield CompletionItem(name)


def models(text: str) -> Iterator[CompletionItem[Any]]:
    """Yield directories; one with a `config.json` is a model and ends there."""
    for name, entry in _entries(text):
        if (entry / "config.json").is_file():
            yield CompletionItem(name, help="model")
        elif entry.is_dir():
            yield CompletionItem(f"{name}/", PART)


def _listed(helps: Mapping[str, str], part: str = "plain") -> Items:
    return [CompletionItem(name, part, help=text) for name, text in helps.items()]


def _models(asked: Question) -> Items:
    from packager.catalog.models import models as published

    yield from models(asked.text)
    yield from _listed(MODELS, PART)
    if asked.text:  # hundreds: only where one was begun
        yield from (CompletionItem(one.hf_id) for one in published())


def _drafts(asked: Question) -> Items:
    kind, colon, place = asked.text.partition(":")
    for one in models(place if colon else kind):
        start = f"{kind}:" if colon else ""
        yield CompletionItem(f"{start}{one.value}", one.type, one.help)
    for name, text in DRAFTS.items() if not colon else ():
        yield CompletionItem(name, PART if name.endswith(":") else "plain", text)


def _instances(asked: Question) -> Items:
    from packager.catalog.accelerators import accelerator_rows
    from packager.catalog.instances import instances

    count, cross, _ = asked.text.partition("x")
    if cross and count.isdecimal():
        for row in accelerator_rows().values():
            yield CompletionItem(f"{count}x{row.spelled}" if row.spelled else "")
    if asked.command == "plan":
        yield CompletionItem("all", help="rank them all")
    yield CompletionItem("local", help="this machine")
    shipped = {one.name: f"{one.devices} x {one.device_name}" for one in instances()}
    yield from _listed(shipped)
    for machine in getattr(_own_rows(), "instances", ()):
        yield CompletionItem(machine.name, help="your own")
    if not any(name.startswith(asked.text) for name in shipped):
        for name, text in shipped.items():  # EC2's names are understood, too
            yield CompletionItem(name.removeprefix("ml."), help=text)


def _containers(asked: Question) -> Items:
    from packager.catalog.containers import containers, version_names

    wanted = asked.options.get("family")
    own = getattr(_own_rows(), "containers", ())
    versions: dict[str, list[str]] = {}
    for image in containers():
        versions.setdefault(image.family, []).extend(version_names(image)[::-1])
    for family, names in versions.items():
        if wanted in (None, family):
            yield from (CompletionItem(name, help=family) for name in names)
    for image in own:
        if wanted in (None, image.family):
            yield CompletionItem(image.version, help=f"{image.family}, your own")


def _keys(asked: Question) -> Items:
    entries = _cache(asked) / "ac"
    left = MOST_ENTRIES
    for kind in _names(entries):
        for shard in _names(entries / kind):
            if not (asked.text[:2].startswith(shard) or shard.startswith(asked.text[:2])):
                continue
            for name in _names(entries / kind / shard):
                key = name.removesuffix(".json")
                if left == 0:
                    return
                left -= 1
                yield CompletionItem(key[: max(KEY_DIGITS, len(asked.text))], help=kind)


def _cache(asked: Question) -> Path:
    from packager.cli.wiring.caches import artifacts_dir
    from packager.cli.wiring.settings import Settings

    named = asked.options.get("cache_dir")
    return artifacts_dir(Settings(cache_dir=Path(named).expanduser() if named else None))


def _own_rows() -> object:
    """Return the user's own catalog; None where it is broken."""
    from packager.cli.wiring.settings import Settings, user_rows

    with suppress(PackagerError):
        return user_rows(Settings())
    return None


def _addresses(asked: Question) -> Items:
    """Return the beginnings of images' addresses, and directories behind `oci:`."""
    if not asked.text.startswith("oci:"):
        return _listed(OUTPUTS, PART)
    below = paths(asked.text.removeprefix("oci:"), files=False)
    return (CompletionItem(f"oci:{one.value}", one.type, one.help) for one in below)


def _families(_: Question) -> Items:
    from packager.cli.plugins.tables import FAMILIES

    return _listed(FAMILIES.summaries())


def _compilers(_: Question) -> Items:
    from packager.cli.plugins.tables import COMPILERS

    return _listed({"auto": "", "off": "", **COMPILERS.summaries()})


def _quantizers(_: Question) -> Items:
    from packager.catalog.techniques import techniques

    known = {one.name: one.gives for one in techniques() if one.kind == "quantizer"}
    return _listed({"auto": "the goal's best", "none": "", **known})


def _findings(_: Question) -> Items:
    from packager.catalog.findings import explanations

    return _listed({code: one.title for code, one in explanations().items()})


def _regions(_: Question) -> Items:
    from packager.catalog.containers import accounts

    return _listed(dict.fromkeys(accounts().by_region, ""))


def _tools(_: Question) -> Items:
    from packager.cli.wiring.techniques import tool_names

    return _listed(dict.fromkeys(tool_names(), ""))


def _workloads(asked: Question) -> Items:
    from packager.core.workload import WORKLOADS

    return [*_listed(dict.fromkeys(WORKLOADS, "")), *paths(asked.text)]


KINDS: Mapping[str, Callable[[Question], Items]] = {
    "base": lambda asked: [
        *_listed({"scratch": "an empty image", "embedded:vllm-cpu": "built by packager"}),
        *_addresses(asked),
    ],
    "compiler": _compilers,
    "container": _containers,
    "data": lambda asked: [
        *_listed({"default": "those that packager brings along"}),
        *paths(asked.text),
    ],
    "directory": lambda asked: paths(asked.text, files=False),
    "draft": _drafts,
    "family": _families,
    "file": lambda asked: paths(asked.text),
    "finding": _findings,
    "image": _addresses,
    "instance": _instances,
    "key": _keys,
    "key-kind": lambda asked: (CompletionItem(name) for name in _names(_cache(asked) / "ac")),
    "model": _models,
    "output": _addresses,
    "quantize": _quantizers,
    "region": _regions,
    "tool": _tools,
    "workload": _workloads,
}


def _entries(text: str) -> Iterator[tuple[str, Path]]:
    """Yield entries with the names they have on the command line, at most `MOST_ENTRIES`."""
    head, slash, begun = text.rpartition("/")
    with suppress(OSError, RuntimeError):  # RuntimeError: the user does not exist
        place = Path(head + slash).expanduser()
        begins = (name for name in _names(place) if name.startswith(begun))
        for name in itertools.islice(begins, MOST_ENTRIES):
            if begun.startswith(".") or not name.startswith("."):
                yield f"{head}{slash}{name}", place / name


def _names(place: Path) -> list[str]:
    with suppress(OSError):
        return sorted(entry.name for entry in place.iterdir())
    return []
