"""Print what SpecForge takes: its commands' arguments, and the run's schema where we write it.

Run in the environment of the tool `specforge`.  `tests/support/data/containers/specforge.json` is
what it printed; there the tool's arguments and settings are held against it without SpecForge.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

SECTIONS = (
    "DataConfig", "DeploymentConfig", "ModelConfig", "TrainerDeploymentConfig", "TrainingConfig",
)  # fmt: skip
FIELDS = ("run_id", "output_dir", "model", "data", "training", "deployment")
FOR_PEOPLE = ("title", "description", "default")


class _Parsed(Exception):
    """Carries the parser away before it parses."""


def commands() -> dict[str, Any]:
    """Give the arguments of `train` and `export` as their parser has them."""
    from specforge import cli

    def leave(parser: argparse.ArgumentParser, _: object = None) -> None:
        raise _Parsed(parser)

    argparse.ArgumentParser.parse_args = leave  # type: ignore[assignment,method-assign]
    try:
        cli.main([])
    except _Parsed as caught:
        parser = caught.args[0]
    [sub] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return {
        name: [_argument(one) for one in sub.choices[name]._actions if one.dest != "help"]
        for name in ("train", "export")
    }


def run_schema() -> dict[str, Any]:
    """Give the schema of a run's configuration, without what we do not write."""
    from specforge.config import Config

    whole = Config.model_json_schema()
    sections = {name: _section(whole["$defs"][name]) for name in SECTIONS}
    del sections["DeploymentConfig"]["properties"]["disaggregated"]
    return {
        **_section({**whole, "properties": {name: whole["properties"][name] for name in FIELDS}}),
        "$defs": sections,
    }


def _argument(action: argparse.Action) -> dict[str, Any]:
    told: dict[str, Any] = {
        "flags": list(action.option_strings) or [action.dest],
        "required": action.required,
    }
    if action.choices:
        told["choices"] = list(action.choices)
    if action.nargs is not None:
        told["nargs"] = action.nargs
    return told


def _section(schema: dict[str, Any]) -> dict[str, Any]:
    assert schema["additionalProperties"] is False
    return {
        "type": "object",
        "additionalProperties": False,
        "required": schema.get("required", []),
        "properties": {
            name: {key: value for key, value in one.items() if key not in FOR_PEOPLE}
            for name, one in schema["properties"].items()
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"commands": commands(), "run": run_schema()}, indent=1))
