"""Commands as references and man pages tell of them: usage, options, values and limits."""

from __future__ import annotations

from collections.abc import Iterator

import click

from packager.core.request import LARGEST


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Walk a command and what is below it, in the order that help shows."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                yield from commands(below, f"{path} {name}")


def usage(path: str, command: click.Command) -> str:
    words = [path]
    if any(isinstance(one, click.Option) for one in command.params):
        words.append("[OPTIONS]")
    for one in command.params:
        if isinstance(one, click.Argument):
            name = one.metavar or "|".join(choices_of(one)) or (one.name or "").upper()
            name = name.removesuffix("...") + "..." * (one.nargs == -1)
            words.append(name if one.required or name[0] == "[" else f"[{name}]")
    if isinstance(command, click.Group):
        words.append("COMMAND")
    return " ".join(words)


def spelled(option: click.Option) -> str:
    names = "/".join((*option.opts, *option.secondary_opts))
    return f"`{names}`" if option.is_flag else f"`{names} {value_of(option)}`"


def value_of(option: click.Option) -> str:
    named = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
    if option.metavar:
        return option.metavar
    return "|".join(choices_of(option)) or named.get(option.type.name, option.type.name.upper())


def default_of(option: click.Option, command: click.Command) -> str:
    value = option.get_default(click.Context(command), call=False)
    plain = isinstance(value, str | int | float) and value is not False
    return f"`{value}`" if plain and str(value) else ""


def meaning(option: click.Option) -> str:
    """Return what help says, with the limits of a number and whether it may come again."""
    sentences = [option.help or ""]
    kind = option.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        sentences.append(limits_of(kind))
    if option.required:
        sentences.append("Required.")
    if option.multiple and "epeatable" not in sentences[0]:
        sentences.append("Repeatable.")
    return " ".join(filter(None, sentences))


def number(value: float) -> str:
    """Return a limit as text without an exponent."""
    return str(int(value)) if value == int(value) else str(value)


def limits_of(kind: click.IntRange | click.FloatRange) -> str:
    """Describe the limits of a number; the largest that engines take goes without saying."""
    least, most = kind.min, None if kind.max == LARGEST else kind.max
    if least is not None and most is not None and not (kind.min_open or kind.max_open):
        return f"{number(least)} to {number(most)}."
    words = []
    if least is not None:
        words.append(f"{'more than' if kind.min_open else 'at least'} {number(least)}")
    if most is not None:
        words.append(f"{'less than' if kind.max_open else 'at most'} {number(most)}")
    return f"{' and '.join(words)}.".capitalize() if words else ""


def choices_of(param: click.Parameter) -> tuple[str, ...]:
    found = param.type.choices if isinstance(param.type, click.Choice) else ()
    return tuple(map(str, found))
