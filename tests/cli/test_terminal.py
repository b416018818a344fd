"""Texts, tables and bars: drawn by rich on a terminal, plain and without rich elsewhere."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from persistence.cli import commands
from persistence.cli.terminal import follow, json_option, own_command, print_table, progress, safe, say, width
from persistence.forms.definition_metadata import read_permissions
from persistence.maintenance.reports import in_words
from persistence.model.permissions import from_json
from tests.cli.command_runner import Place
from tests.cli.pseudo_terminal import Terminal, screen, terminal
from tests.published import definition

ROWS = (
    ("FORM", "N", "EMPTY", "TITLE", "NOTES"),
    ("hr/leave", "10", "", "A title of forty characters, or nearly so", "permissions: open to all"),
    ("hr/a", "9", "", "[red]x[/red] :smile:", "damaged: cause"),
)


@pytest.fixture(autouse=True)
def _known_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@contextmanager
def on_terminal(columns: int = 60) -> Iterator[Terminal]:
    """Let both streams be a terminal for a block."""
    with terminal(columns) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", found.stream)
        patch.setattr(sys, "stderr", found.stream)
        yield found


@pytest.mark.parametrize(
    ("called", "on_path", "shown"),
    [
        (".venv/bin/persistence", "", ".venv/bin/persistence"),
        (".venv/bin/persistence", "other", ".venv/bin/persistence"),
        (".venv/bin/persistence", ".venv/bin", "persistence"),
        ("persistence", "", "persistence"),
        ("persistence/cli/__main__.py", "", "persistence"),
    ],
)
def test_a_command_off_path_is_shown_as_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, on_path: str, shown: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in (".venv/bin", "other"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "persistence").touch(0o700)
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setenv("PATH", str(tmp_path / on_path) if on_path else "")
    assert own_command() == shown


def print_rows() -> None:
    print_table(ROWS, right=(1,), flexible=3, footer=("TOTAL", "19", "", "", ""))


def test_without_a_terminal_tables_are_plain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_rows()
    assert capsys.readouterr().out.splitlines() == [
        "FORM       N  TITLE                                      NOTES",
        "hr/leave  10  A title of forty characters, or nearly so  permissions: open to all",
        "hr/a       9  [red]x[/red] :smile:                       damaged: cause",
    ]


def test_on_a_terminal_the_flexible_column_is_cut_and_the_last_one_wrapped() -> None:
    with on_terminal() as shown:
        print_rows()
        text = shown.text()
    assert screen(text) == [
        "FORM       N  TITLE                 NOTES",
        "hr/leave  10  A title of forty ch…  permissions: open to all",
        "hr/a       9  [red]x[/red] :smile:  damaged: cause",
        "TOTAL     19",
        "",
    ]
    assert "\x1b[1mFORM" in text
    assert "\x1b[31mdamaged: cause" in text


def test_names_are_whole_where_the_terminal_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    document = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    monkeypatch.setenv("COLUMNS", "30")
    with terminal(30) as narrow:
        monkeypatch.setattr(sys, "stdout", narrow.stream)
        print_table(
            (("DOCUMENT", "TITLE", "N", "NOTES"), (document, "x" * 40, "7", "some notes to be wrapped")), flexible=1
        )
        lines = screen(narrow.text())
    assert lines[1] == f"{document}  {'x' * 11}…  7  some notes"
    assert [line.strip() for line in lines[2:4]] == ["to be", "wrapped"]


def test_no_color_is_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal() as shown:
        monkeypatch.setenv("NO_COLOR", "1")
        print_rows()
        say("damage: x", "red")
        with progress("checking", lambda: 2) as bar:
            bar.step(2)
        text = shown.text()
    assert "\x1b[3" not in text
    assert "damage: x" in screen(text)


def problems() -> Iterator[str | None]:
    for number in range(30):
        yield None
        if number % 10 == 5:
            yield f"problem {number} " + "with a line that is longer than the terminal " * 2


def test_lines_above_a_bar_are_whole() -> None:
    with on_terminal() as shown:
        assert follow("checking", lambda: 30, problems()) == 3
        text = shown.text()
    lines = [line for line in screen(text) if line]
    assert [line[:10] for line in lines[:-1]] == ["problem 5 ", "problem 15", "problem 25"]
    assert lines[0] == "problem 5 " + ("with a line that is longer than the terminal " * 2).rstrip()
    assert lines[-1].startswith("checking ━━━━")
    assert " 30/30 " in lines[-1]
    assert lines[-1].endswith("left 0:00:00")
    assert len(lines[-1]) == 60


def test_lines_to_a_file_are_not_on_the_terminal_of_the_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal() as errors:
        monkeypatch.setattr(sys, "stderr", errors.stream)
        followed = click.command()(json_option(lambda: follow("checking", lambda: 30, problems())))
        assert followed(["--json"], standalone_mode=False) == 3
        sys.stderr.write("and a line to standard error\n")
        lines = screen(errors.text())
    assert [line.startswith('{"problem":"problem ') for line in capsys.readouterr().out.splitlines()] == [True] * 3
    assert [line[:12] for line in lines if line] == ["checking ━━━", "and a line t"]


def test_what_is_written_to_standard_error_meanwhile_stands_above_the_bar() -> None:
    with on_terminal() as shown:
        with progress("[b]exporting[/b]", lambda: 3, only_errors=True) as bar:
            bar.step(2)
            sys.stderr.write("a warning of a library\n")
            bar.say_either({}, "a problem")
            click.echo("a line", err=True)
            click.echo("another")
            click.echo("and more", nl=False)
            bar.step()
        text = shown.text()
    lines = [line for line in screen(text) if line]
    assert lines[:-1] == ["a warning of a library", "a problem", "a line", "another", "and more"]
    assert lines[-1].startswith("[b]exporting[/b] ━")


def _interrupted() -> None:
    with progress("checking", lambda: 9) as bar:
        bar.step(4)
        raise KeyboardInterrupt


def test_a_bar_without_an_end_and_one_that_is_interrupted() -> None:
    with on_terminal() as shown:
        with progress("restoring", lambda: 0) as bar:
            bar.step(7)
        with pytest.raises(KeyboardInterrupt):
            _interrupted()
        text = shown.text()
    lines = [line for line in screen(text) if line]
    assert [" 7/? " in lines[0], " 4/9 " in lines[1]] == [True, True]
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_bar_is_drawn_ten_times_a_second_at_most() -> None:
    with on_terminal() as shown:
        with progress("checking", lambda: 100_000) as bar:
            for _ in range(100_000):
                bar.step()
        text = shown.text()
    assert text.count("checking") < 50


def test_what_the_encoding_of_a_terminal_lacks_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as found:
        found.stream.reconfigure(encoding="latin-1")  # type: ignore[attr-defined]
        monkeypatch.setattr(sys, "stdout", found.stream)
        monkeypatch.setattr(sys, "stderr", found.stream)
        print_table((("A", "B"), ("请", "x")))
        with progress("请", lambda: 1) as bar:
            bar.say_either({}, "请假")
        found.stream.reconfigure(encoding="utf-8")  # type: ignore[attr-defined]
        text = found.text()
    assert [line.split() for line in screen(text)[1:3]] == [["?", "x"], ["??"]]


def test_forms_have_a_row_of_totals_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "data")
    wide = "A title that is a good deal wider than the terminal " * 5
    for form, title in (("a/a", "[bold]T"), ("a/b", wide)):
        place.put(f"{form}/form/form.xhtml", definition(f"<title>{title}</title>"))
        place.put(f"{form}/data/{form[2]}/data.xml")
        place.put(f"{form}/data/{form[2]}-gone/data.xml")
        place.delete(f"{form}/data/{form[2]}-gone/data.xml")
    arguments = ["forms", "--data", str(place.root)]
    monkeypatch.setenv("COLUMNS", "200")
    with terminal(200) as found:
        monkeypatch.setattr(sys, "stdout", found.stream)
        with pytest.raises(SystemExit):
            commands(arguments)
        shown = screen(found.text())
    assert ("wider" in shown[2], "… " in shown[2], len(shown[2])) == (True, True, len(shown[1]))
    assert wide.strip() in place.run("forms").stdout
    lines = [line.split() for line in shown]
    bytes_end = shown[0].index("BYTES") + 5
    assert [line[0] for line in lines[:4]] == ["FORM", "a/a", "a/b", "TOTAL"]
    assert lines[1][2] == "[bold]T"
    assert lines[3][1:3] == ["2", "2"]
    assert int(lines[3][3]) == sum(int(line[:bytes_end].split()[-1]) for line in shown[1:3])


def test_rich_is_loaded_only_where_there_is_a_terminal(tmp_path: Path) -> None:
    """Neither a command whose output is read by a script nor the service loads it."""
    place = Place(tmp_path / "data")
    place.put("hr/leave/form/form.xhtml", definition(""))
    program = (
        "import sys, persistence.app, persistence.cli.serve\n"
        "from persistence.cli import commands\n"
        f"try: commands(['forms', '--data', {str(place.root)!r}])\n"
        "except SystemExit: pass\n"
        "assert 'rich' not in sys.modules\n"
        "for name in commands.list_commands(None): commands.get_command(None, name)\n"
        "assert 'persistence.cli.rich_terminal' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


# Texts, columns and permissions as the terminal gets them


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Ürlaub 请假 e\u0301 \N{FAMILY}", "Ürlaub 请假 e\u0301 \N{FAMILY}"),
        ("a\x1b[31mb", "a�[31mb"),
        ("a\nb\rc\td\x00e\x7ff", "a�b�c�d�e�f"),
        ("a\x85b\x9b31mc", "a�b�31mc"),
        ("a\u202eb\u2066c\u2028d\u200fe", "a�b�c�d�e"),
        ("a\udcffb", "a�b"),
    ],
)
def test_nothing_but_what_can_be_seen_reaches_a_terminal(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("请假条", 6), ("e\u0301e\u0301", 2), ("", 0)])
def test_texts_are_as_wide_as_the_columns_they_take(text: str, columns: int) -> None:
    assert width(text) == columns


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("NAME", "N", "EMPTY", "END"), ("请假", "10", "", "x"), ("a", "9", "", "")], right=(1,))
    assert capsys.readouterr().out.splitlines() == ["NAME   N  END", "请假  10  x", "a      9"]


@pytest.mark.parametrize(
    ("permission", "words"),
    [
        ("", "nobody may do anything"),
        ('<permission operations="create -list"/>', "anyone: create"),
        ('<permission operations="-list"/>', "anyone: nothing"),
        ('<permission operations="update read"><owner/></permission>', "owner: read update list"),
        (
            '<permission operations=""><owner/><user-role any-of="b%20c a"/></permission>',
            "owner and role a or b c: list",
        ),
        (
            '<permission operations="read fly -list"><any-authenticated-user/></permission>',
            "whoever has a name: read fly (not known here)",
        ),
        (
            '<permission operations="read -list"><moon-phase/></permission>',
            "nobody, for the condition is not known here: read",
        ),
        ('<permission operations="read -list"><user-role/></permission>', "nobody, for no role is named: read"),
    ],
)
def test_permissions_in_words(permission: str, words: str) -> None:
    """Spec crud 6.2: each is one rule; all of its conditions must hold, one of the roles."""
    assert list(in_words(read_permissions(f"<permissions>{permission}</permissions>"))) == [words]


def test_undefined_permissions_and_those_of_a_property() -> None:
    """Spec crud 6.3: nothing defined is everything; in the property ``list`` is not implied."""
    assert list(in_words(None)) == ["everyone may do everything"]
    text = '{"anyone": ["create"], "anyone-with-token": ["read"], "roles": {"clerk": ["read", "list"]}}'
    assert list(in_words(from_json(text))) == [
        "anyone: create",
        "anyone with an access token: read",
        "role clerk: read list",
    ]
