"""The index by which shells complete command lines: packager/cli/completion/index.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from packager.addons.fleet.fleets.table import FLEETS
from packager.catalog.accelerators import accelerator_rows
from packager.catalog.containers import accounts, containers, version_names
from packager.catalog.findings import explanations
from packager.catalog.instances import instances
from packager.catalog.models import models
from packager.catalog.techniques import techniques
from packager.cli.plugins.rows import Table
from packager.cli.plugins.tables import COMPILERS, FAMILIES
from packager.cli.wiring.techniques import tool_names
from packager.core.workload import WORKLOADS

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
    ("tools remove", "name"): "tool",
    ("warm render kubernetes", "image"): "",
    ("warm tool", "name"): "tool",
}
# Choices among plug-ins, which installed packages may add to.
TABLES: Mapping[str, Table[Any]] = {"family": FAMILIES, "fleet": FLEETS}
_LONGEST = 70  # characters of help beside a value


def index_text(commands: Iterator[tuple[str, click.Command]]) -> str:
    """Return the index as JSON, one option a line."""
    document = {
        "commands": {
            path.removeprefix("packager").strip(): _node(path, command)
            for path, command in commands
        },
        "values": values(),
    }
    return _written(document) + "\n"


def _node(path: str, command: click.Command) -> dict[str, Any]:
    place = path.removeprefix("packager").strip()
    node: dict[str, Any] = {"options": {}}
    for one in command.params:
        if isinstance(one, click.Option) and not one.hidden:
            row = [kind_of(place, one), _count(one), _first(one.help)]
            node["options"] |= dict.fromkeys((*one.opts, *one.secondary_opts), row)
    for name in ("-h", "--help"):
        node["options"][name] = ["", "0", "Show help and exit."]
    if isinstance(command, click.Group):
        context = click.Context(command)
        node["commands"] = dict(_summaries(command, context))
    node["arguments"] = [
        [kind_of(place, one), "*" if one.nargs == -1 else "1"]
        for one in command.params
        if isinstance(one, click.Argument)
    ]
    return node


def _summaries(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the commands of a group with what help says of them."""
    rows = getattr(group, "table", {})
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, rows[name][1] if name in rows else command.get_short_help_str(_LONGEST)


def kind_of(place: str, param: click.Parameter) -> str | list[str]:
    """Return what a value is: a kind, its choices, or "" where nothing completes it."""
    name = param.name or ""
    if (place, name) in BY_PLACE:
        return BY_PLACE[place, name]
    if isinstance(param.type, click.Choice):
        found = [str(choice) for choice in param.type.choices]
        return next((kind for kind, table in TABLES.items() if [*table] == found), found)
    if isinstance(param.type, click.Path) and not param.type.file_okay:
        return "directory"
    if param.metavar in BY_METAVAR:
        return BY_METAVAR[param.metavar]
    if isinstance(param, click.Argument):
        return BY_NAME.get(name, "")
    return ""


def values() -> dict[str, Mapping[str, Any]]:
    """Return the values of each kind with what is shown beside them."""
    versions: dict[str, list[str]] = {}
    for image in containers():
        known = versions.setdefault(image.family, [])
        known += [name for name in version_names(image)[::-1] if name not in known]
    return {
        "base": {"scratch": "an empty image", "embedded:vllm-cpu": "built by packager"},
        "compiler": {"auto": "", "off": "", **COMPILERS.summaries()},
        "container": versions,
        "data": {"default": "those that packager brings along"},
        "device": {row.spelled: "" for row in accelerator_rows().values() if row.spelled},
        "draft": DRAFTS,
        "family": FAMILIES.summaries(),
        "finding": {code: one.title for code, one in explanations().items()},
        "fleet": FLEETS.summaries(),
        "instance": {
            "local": "this machine",
            **{one.name: f"{one.devices} x {one.device_name}" for one in instances()},
        },
        "model": {one.hf_id: "" for one in models()},
        "quantize": {
            "auto": "the goal's best",
            "none": "",
            **{one.name: one.gives for one in techniques() if one.kind == "quantizer"},
        },
        "region": dict.fromkeys(accounts().by_region, ""),
        "tool": dict.fromkeys(tool_names(), ""),
        "workload": dict.fromkeys(WORKLOADS, ""),
    }


DRAFTS = {
    "auto": "the best that is known",
    "none": "",
    "mtp": "the model's own heads",
    "ngram": "n-grams of the prompt",
    "ngram_gpu": "n-grams, on the GPU",
    "suffix": "suffixes of earlier answers",
    "eagle:": "heads",
    "eagle3:": "heads",
    "peagle:": "heads",
    "dflash:": "heads",
    "medusa:": "heads",
}


def _count(option: click.Option) -> str:
    """Return how often a value follows: 0, 1, ? where it may be left out, * repeated."""
    if option.is_flag:
        return "0"
    if (option.metavar or "").startswith("[="):
        return "?"
    return "*" if option.multiple else "1"


def _first(text: str | None) -> str:
    """Return the first sentence of a help text."""
    told = (text or "").partition(". ")[0].partition("; ")[0]
    return told if len(told) <= _LONGEST else told[: _LONGEST - 1].rpartition(" ")[0] + " …"


def _written(value: Any, indent: str = "") -> str:
    """Write JSON with a line for each option and each value."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    rows = (
        f"{indent} {json.dumps(name)}: {_written(one, indent + ' ')}" for name, one in value.items()
    )
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
