"""Conversion of click's usage errors into ours: what is wrong, with which value, what to do.

click words each kind of mistake in its own way, and only some with a suggestion.  Here all read
like the errors of the commands themselves.
"""

from __future__ import annotations

import ast
import re

import click

from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.request import LARGEST
from packager.core.suggestions import guessed, nearest, other_word

_NO_COMMAND = re.compile(r"No such command (?P<name>'.*'|\".*\")\.", re.DOTALL)
_EXTRA = re.compile(r"Got unexpected extra arguments? \((?P<words>.*)\)", re.DOTALL)
_ROUND = re.compile(r"[\d_,.]*\d(k|m|ki|mi|e\d+|[_,.]\d+)", re.IGNORECASE)  # 128k, 1e6, 32,768
# Names of one action in other tools, where a group of commands has another of them.
_SAME = (
    ("ls", "list", "show", "get"),
    ("rm", "remove", "delete", "uninstall", "del", "prune", "clean", "gc"),
    ("install", "add", "get"),
    ("start", "run", "up", "begin", "create"),
    ("status", "describe", "show", "info", "inspect"),
    ("stop", "cancel", "kill", "abort"),
    ("export", "save", "push"),
    ("import", "load", "pull"),
    ("logs", "log", "tail", "follow"),
)


def requested_help(error: click.ClickException) -> str | None:
    """Return the help of a command group called without a command; None for other errors."""
    # click raises this since 8.2, with the help for its message
    return error.ctx.get_help() if type(error).__name__ == "NoArgsIsHelpError" else None  # type: ignore[attr-defined]


def explain_usage(error: click.ClickException) -> UsageError:
    """Return click's error in our words, with a hint."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error, context)
    if isinstance(error, click.BadOptionUsage):
        return _bad_option(error)
    if isinstance(error, click.MissingParameter):
        return _missing(error, context)
    if isinstance(error, click.BadParameter):
        return _bad_value(error, context)
    message = error.message
    if context is not None and (found := _NO_COMMAND.match(message)) is not None:
        return _no_such_command(_literal(found["name"]), context)
    if (found := _EXTRA.fullmatch(message)) is not None:
        return _unexpected(found["words"], context)
    return UsageError(_plain(error.format_message()), hint=_how(context))


def _no_such_option(error: click.NoSuchOption, context: click.Context | None) -> UsageError:
    name = error.option_name
    flags = [flag for flag in _options_of(context) if flag not in ("-h", "--help")]
    how = _how(context)
    word = other_word("option", name)
    if word is not None and word.ours not in flags:
        how = word.hint or f"that is {word.ours} of `packager {word.command}`; {how}"
    elif word is not None:
        how = f"write {word.ours}; {how}"
    elif close := nearest(name.lstrip("-"), [flag.lstrip("-") for flag in flags]):
        meant = next(flag for flag in flags if flag.lstrip("-") == close)
        how = f"did you mean {meant!r}? {how}"
    return UsageError(f"{_path(context)} has no option {shorten(name, 200)}", hint=how)


def _no_such_command(name: str, context: click.Context) -> UsageError:
    group = context.command
    known = group.list_commands(context) if isinstance(group, click.Group) else []
    hint = f"`{context.command_path} -h` lists them"
    kind = "command" if context.parent is None else ""
    same = [one for words in _SAME if name in words for one in words if one in known]
    if below := [one for one in known if name in _commands_of(group, one, context)]:
        hint = (
            f"write it behind one of {', '.join(below)}: `{context.command_path} {below[0]} {name}`"
        )
    elif same and not (kind and other_word(kind, name)):
        hint = f"did you mean {same[0]!r}? {hint}"
    else:
        hint = guessed(name, known, hint, kind=kind)
    return UsageError(f"{_path(context)} has no command {shorten(name, 200)}", hint=hint)


def _commands_of(group: click.Command, name: str, context: click.Context) -> list[str]:
    """Return the commands of a group's own group; of `packager`, which has many, none."""
    if context.parent is None or not isinstance(group, click.Group):
        return []
    found = group.get_command(context, name)
    return found.list_commands(context) if isinstance(found, click.Group) else []


def _unexpected(words: str, context: click.Context | None) -> UsageError:
    kind = "argument" if " " not in words else "arguments"
    hint = _how(context, with_usage=True)
    if words == "help":
        hint = _how(context)
    elif context is not None and context.command_path in ("packager serve", "packager api start"):
        model = words.split()[0]
        hint = f"`packager run {model}` serves a model; this command answers the SageMaker API"
    return UsageError(f"unexpected {kind} {shorten(words, 200)}", hint=hint)


def _bad_option(error: click.BadOptionUsage) -> UsageError:
    name = error.option_name
    if "does not take" in error.message:
        return UsageError(f"{name} takes no value", hint=f"write {name} alone")
    return UsageError(f"{name} has no value", hint=f"write {name} VALUE")


def _missing(error: click.MissingParameter, context: click.Context | None) -> UsageError:
    parameter = error.param
    choices = _choices(parameter)
    if isinstance(parameter, click.Option) and context is not None:
        value = parameter.make_metavar(context)
        hint = f"add {_spelled(parameter, context)} {value}; {_how(context)}"
    else:
        hint = f"choose from {', '.join(choices)}" if choices else _how(context, with_usage=True)
    return UsageError(f"no {_spelled(parameter, context)} is given", hint=hint)


def _bad_value(error: click.BadParameter, context: click.Context | None) -> UsageError:
    parameter = error.param
    spelled = _spelled(parameter, context) if parameter is not None else "value"
    value, said, _ = error.message.partition(" is not ")
    kind = parameter.type if parameter is not None else None
    if said and isinstance(kind, click.Choice):
        said = f"invalid {spelled}"
        if isinstance(parameter, click.Argument):
            said = f"{_path(context)} does not know"
        return _bad_choice(said, _literal(value), _choices(parameter), spelled.lstrip("-"))
    if said and isinstance(kind, click.IntRange | click.FloatRange):
        value = _literal(value)
        wanted = f"give {_range_words(kind, value)}"
        if isinstance(kind, click.IntRange) and _ROUND.fullmatch(value):
            wanted += ", in digits alone: 131072, not 128k"
        return UsageError(f"invalid {spelled} {shorten(value, 200)}", hint=wanted)
    return UsageError(f"invalid {spelled}: {_plain(error.message)}", hint=_how(context))


def _bad_choice(said: str, value: str, choices: tuple[str, ...], kind: str) -> UsageError:
    listed = f"choose from {', '.join(choices)}"
    hint = guessed(value, choices, listed)
    word = other_word(kind, value)
    if word is not None and (word.hint or word.ours in choices):
        hint = word.hint or f"write {word.ours}; {listed}"
    return UsageError(f"{said} {shorten(value, 200)}", hint=hint)


def _range_words(kind: click.IntRange | click.FloatRange, given: str) -> str:
    """Describe the range of an option; omit a limit that no user would reach."""
    words = []
    if kind.min is not None:
        words.append(f"{'more than' if kind.min_open else 'at least'} {_number(kind.min)}")
    if kind.max is not None and (kind.max < LARGEST or len(given) >= len(str(LARGEST))):
        words.append(f"{'less than' if kind.max_open else 'at most'} {_number(kind.max)}")
    number = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    return ", ".join(filter(None, (number, " and ".join(words))))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _choices(parameter: click.Parameter | None) -> tuple[str, ...]:
    kind = parameter.type if parameter is not None else None
    return tuple(map(str, kind.choices)) if isinstance(kind, click.Choice) else ()


def _spelled(parameter: click.Parameter | None, context: click.Context | None) -> str:
    """Write a parameter as `--help` does: an option's flag, an argument's name."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    if parameter is None:
        return "argument"
    if parameter.metavar or context is None or _choices(parameter):
        return parameter.metavar or (parameter.name or "argument").upper()
    return (parameter.name or "argument").upper()


def _options_of(context: click.Context | None) -> tuple[str, ...]:
    if context is None:
        return ()
    found = [one for one in context.command.get_params(context) if isinstance(one, click.Option)]
    return tuple(flag for one in found for flag in (*one.opts, *one.secondary_opts))


def _path(context: click.Context | None) -> str:
    return f"`{context.command_path}`" if context is not None else "the command"


def _how(context: click.Context | None, *, with_usage: bool = False) -> str:
    if context is None:
        return "`packager -h` shows the commands"
    shown = f"`{context.command_path} -h` shows how it is used"
    if not with_usage:
        return shown
    words = (context.command_path, *context.command.collect_usage_pieces(context))
    return f"write `{' '.join(words)}`; {shown}"


def _literal(text: str) -> str:
    """Return the value that click wrote as Python does, or as it is."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _plain(message: str) -> str:
    """Write a sentence as our messages are: one line, lower case, no full stop."""
    line = " ".join(message.split()).rstrip(".")
    return line[:1].lower() + line[1:]
