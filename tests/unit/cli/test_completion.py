"""What shells are offered, without a shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from packager.cli.app import app, run
from packager.cli.completion import VARIABLE, values
from packager.cli.completion.answer import answer, answer_to
from packager.cli.completion.shells import Line, quoted, split_line
from packager.cli.completion.values import BY_METAVAR, BY_NAME, BY_PLACE, KINDS
from tests.support.cases import cases, read_tables
from tests.support.places import ROOT

TABLES = read_tables(__file__)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def small() -> None:
    """Stand for packager."""


@small.command()
@click.argument("first", type=click.Choice(["one", "two"]))
@click.argument("rest", nargs=-1, type=click.Choice(["apple", "pear"]))
@click.option("--as", "form", type=click.Choice(["text", "json"]), help="How. And why.")
@click.option("--add", multiple=True)
@click.option("--all", is_flag=True)
@click.option("--strict", is_flag=False, flag_value="any", type=click.Choice(["any", "ties"]))
@click.option("--secret", hidden=True)
def get(**_: object) -> None:
    """Show a command with options of every kind."""


@small.command()
@click.option("--fast", is_flag=True)
def go(**_: object) -> None:
    """Show a command with one flag."""


@cases("what_may_come_next_is_offered")
def test_what_may_come_next_is_offered(words: tuple[str, ...], expected: list[str]) -> None:
    lines = answer_to(small, "fish", words).splitlines()

    assert [line.partition("\t")[0] for line in lines] == expected


def test_help_is_the_first_sentence() -> None:
    assert answer_to(small, "fish", ["get", "--as"]) == "--as\tHow\n"


@cases("a_line_is_split_as_a_shell_does")
def test_a_line_is_split_as_a_shell_does(
    line: str, words: tuple[str, ...], text: str, typed: str, quote: str
) -> None:
    assert split_line(line) == Line(words, text, typed, quote)


def test_what_a_shell_would_read_otherwise_is_quoted() -> None:
    assert quoted("~/my model/é$x'") == "~/my\\ model/é\\$x\\'"


@pytest.fixture(autouse=True)
def completing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Complete values as in a call of a shell; afterwards as before."""
    monkeypatch.setenv(VARIABLE, "bash")
    given: list[tuple[click.Parameter, click.ParamType]] = []
    complete = values.complete_values

    def remember(command: click.Command) -> None:
        given.extend((one, one.type) for one in command.params)
        complete(command)

    monkeypatch.setattr(values, "complete_values", remember)
    yield
    for parameter, kind in reversed(given):
        parameter.type = kind


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def offered(line: str) -> list[str]:
    """What bash is told, for a word that it does not split further."""
    return answer_to(app, "bash", [line]).splitlines()


def test_models_are_directories_that_end_where_a_configuration_is(place: Path) -> None:
    for name in ("models/tiny", "models/other", ".hidden"):
        (place / name).mkdir(parents=True)
    (place / "models/tiny/config.json").touch()
    (place / "models/file.txt").touch()

    assert offered("packager plan --model mo") == ["models/"]
    assert offered("packager plan --model models/") == ["models/other/", "models/tiny "]
    assert offered("packager plan --model ~/models/t") == ["~/models/tiny "]
    assert offered("packager plan --model .h") == [".hidden/"]
    assert offered("packager plan --model h") == ["hf://"]


def test_a_name_that_would_start_a_line_of_its_own_is_not_offered(place: Path) -> None:
    (place / "evil\nrm").mkdir()
    (place / "evening").mkdir()

    assert offered("packager plan --model ev") == ["evening/"]


def test_published_models_are_offered_once_one_is_begun(place: Path) -> None:
    assert offered("packager plan --model Qwen/Qwen3-3") == ["Qwen/Qwen3-32B "]
    assert offered("packager plan --model ''") == ["hf://", "s3://"]


def test_instances_have_three_spellings(place: Path) -> None:
    assert offered("packager plan --instance ml.g5.xl") == ["ml.g5.xlarge "]
    assert offered("packager plan --instance g5.xl") == ["g5.xlarge "]
    assert "8xH100-80 " in offered("packager plan --instance 8xH")
    assert offered("packager plan --instance al") == ["all "]
    assert offered("packager build --instance al") == []


def test_own_rows_of_the_user_are_offered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    (place / "packager").mkdir()
    (place / "packager/catalog.toml").write_text(TABLES["own_rows_of_the_user_are_offered"])

    assert offered("packager plan --instance our") == ["our-box "]
    assert offered("packager plan --family vllm --container-version our") == ["our-9 "]
    assert offered("packager plan --family tgi --container-version our") == []


def test_a_broken_catalog_offers_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    (place / "packager").mkdir()
    (place / "packager/catalog.toml").write_text("[[instance]\n")

    assert offered("packager plan --instance ml.g5.xl") == ["ml.g5.xlarge "]


def test_versions_are_those_of_the_family() -> None:
    assert "3.3.6 " in offered("packager plan --family tgi --container-version 3.3")
    assert "0.33.0 " in offered("packager plan --container-version 0.3")
    assert offered("packager plan --family tgi --container-version 0.3") == []


def test_outputs_begin_with_what_they_are_and_layouts_are_directories(place: Path) -> None:
    (place / "out").mkdir()

    assert offered("packager build --output ''") == ["oci:", "docker:"]
    assert offered("packager build --output oci:o") == ["oci:out/"]
    assert offered("packager build --base s") == ["scratch "]


def test_bash_gets_what_it_replaces_only(place: Path) -> None:
    (place / "out dir").mkdir()

    assert answer_to(app, "bash", ["packager build --output oci:o", "o"]) == "out\\ dir/\n"
    assert answer_to(app, "bash", ["packager plan --family=v", "v"]) == "vllm \n"
    assert answer_to(app, "bash", ['packager build --output "oci:o', "oci:o"]) == "oci:out dir/\n"


def test_zsh_gets_quoted_values_with_their_help(place: Path) -> None:
    (place / "out dir").mkdir()

    assert answer_to(app, "zsh", ["build", "--output", "oci:o"]) == "-\toci:out\\ dir/\t\n"
    assert (
        answer_to(app, "zsh", ["plan", "--family", "tg"]) == "+\ttgi\tText Generation Inference\n"
    )


def test_fish_gets_values_as_they_are(place: Path) -> None:
    (place / "out dir").mkdir()

    assert answer_to(app, "fish", ["build", "--output", "oci:o"]) == "oci:out dir/\t\n"


KEY = "0123456789abcdef" * 4


@pytest.mark.parametrize("where", ["option", "environment", "file"])
def test_cache_keys_are_short(place: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    cache = place / "cache dir"
    shard = cache / "artifacts/ac/quantized-checkpoint/01"
    shard.mkdir(parents=True)
    (shard / f"{KEY}.json").touch()
    monkeypatch.delenv("PACKAGER_CACHE")
    given = ""
    if where == "option":
        given = f"--cache-dir '{cache}' "
    elif where == "environment":
        monkeypatch.setenv("PACKAGER_CACHE", str(cache))
    else:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
        (place / "packager").mkdir()
        (place / "packager/cache.toml").write_text(f'directory = "{cache}"\n')

    assert offered(f"packager cache show {given}0") == ["0123456789ab "]
    assert offered(f"packager cache show {given}{KEY[:20]}") == [f"{KEY[:20]} "]
    assert offered(f"packager cache show {given}9") == []
    assert offered(f"packager cache ls {given}--kind q") == ["quantized-checkpoint "]


@cases("values_of_a_kind_are_offered")
def test_values_of_a_kind_are_offered(line: str, expected: str) -> None:
    assert expected in offered(line)


def test_every_kind_of_value_is_known() -> None:
    named = {*BY_METAVAR.values(), *BY_NAME.values(), *BY_PLACE.values()} - {""}

    assert named | {"family"} == set(KINDS)


def test_names_of_commands_are_offered_without_importing_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(app), "get_command", lambda *_: 1 / 0)

    assert offered("packager be") == ["bench "]


@pytest.mark.parametrize("broken", ["a bug", "no arguments", "another shell"])
def test_a_failure_says_nothing(
    broken: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "ksh" if broken == "another shell" else "bash")
    if broken == "a bug":
        monkeypatch.setattr(click.Command, "shell_complete", lambda *_: 1 / 0)

    answer(app, [] if broken == "no arguments" else ["packager ", ""])

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_by_the_command_and_as_click_asks_for_it(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE)
    assert run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    monkeypatch.setenv(VARIABLE, f"{shell}_source")
    answer(app, [])

    assert printed == capsys.readouterr().out
    assert printed == (ROOT / f"templates/completion/packager.{shell}").read_text(encoding="utf-8")
