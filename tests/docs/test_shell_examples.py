"""Every shell example of the documentation runs, or says why not; and prints what the page shows.

A page runs from top to bottom in one shell (sandbox.py), with the documents of stages.py and a service in front.
```` ```sh ```` blocks must succeed. ```` ```console ```` blocks also show what each ``$ command`` prints. What cannot
run here has its reason behind the fence, one of ``REASONS``.
"""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from _pytest.mark import ParameterSet

from tests.docs.markdown import PAGES, ROOT, Block, blocks
from tests.docs.sandbox import Sandbox, home_of, shell, statuses
from tests.docs.stages import STAGES, USUAL
from tests.in_process import serving

_SHELL = {"sh", "console"}
_LANGUAGES = _SHELL | {
    *("console", "crontab", "http", "ini", "json", "postgresql", "python", "sql", "text", "toml", "xml", "yaml")
}
REASONS = {
    "asks for a password",
    "installs packages",
    "needs an account of S3",
    "needs another machine",
    "needs another server",
    "needs another user",
    "upgrades a service",
    "needs containers",
    "needs root and systemd",
    "needs several machines",
}
"""Why examples are not run: whoever adds one decides whether the reader may rely on an example that nothing tests."""

_ELSEWHERE = {
    "git.md": "tests/maintenance/test_git.py",
    "orbeon.md": "tests/http/test_orbeon_guide.py",
    "postgresql.md": "tests/postgresql/test_starting.py",
    "reporting.md": "tests/http/test_reporting.py",
}
"""Pages whose examples another test runs, with documents of its own."""

STATUSES = {"definitions.md": "200", "tour.md": "200 201 200 403 200 204 412 201 201 401 200"}
"""The statuses of the responses of a page, which its text names."""

PRINTED = {
    "tour.md": (
        "var/data/hr/trip/form/1/form.xhtml.json",
        "< <form><trip><city>Paris</city><why>fair</why></trip></form>",
        '"creator": "lea"',
        *('search-total="2"', 'search-total="0"', "persistence_", "trip/city", "<from>Paris</from>"),
    ),
    "searching.md": ('search-total="1"', 'search-total="2"', "<value>Back pain</value>", "\n1b4e28ba "),
}
"""Other things that the output of a page has, because its text says so."""

_CHANGING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", "TIME"),
    (r"sha256:[0-9a-f]{64}", "DIGEST"),
    (r"\b\d+ bytes\b", "BYTES"),
)


def examples(page: Path) -> list[Block]:
    """Return the blocks of a page that run."""
    return [block for block in blocks(page) if block.language in _SHELL and block.not_run is None]


def shown(text: str) -> list[str]:
    """Return lines of output as they compare: without blanks between columns, times, digests and sizes."""
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def is_shown(output: str, block: Block) -> bool:
    """Return whether a ``console`` block shows an output; ``…`` stands for any text, and alone for any lines."""
    lines = shown("\n".join(line for line in block.text.splitlines() if not line.startswith("$ ")))
    pattern = "".join(r"(.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown(output))) is not None


def run(sandbox: Sandbox, block: Block) -> str:
    """Run a block, and compare its output if it shows one."""
    output = sandbox.run(block)
    if block.language == "console":
        assert is_shown(sandbox.shown(output), block), f"{block.page}:{block.line}\n{output}"
    return output


_TOOLS = {"cli.md": "jq"}
"""Tools that the examples of a page need, besides curl."""


def _page(page: Path) -> ParameterSet:
    """Return a page as a parameter of a test that needs its tools."""
    missing = [tool for tool in ("curl", _TOOLS.get(page.name, "curl")) if shutil.which(tool) is None]
    return pytest.param(page, marks=pytest.mark.skipif(bool(missing), reason=f"needs {' '.join(missing)}"))


PAGES_WITH_EXAMPLES = [_page(page) for page in PAGES if page.name not in _ELSEWHERE and examples(page)]


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page_work_literally(page: Path, tmp_path: Path) -> None:
    stage = STAGES.get(page.name, USUAL)
    own = tmp_path / "elsewhere" if stage.fresh else home_of(tmp_path)
    (own / "config").mkdir(parents=True)
    (own / "config/persistence.toml").write_text(stage.settings.replace("{mnt}", str(tmp_path / "mnt")))
    options = ("--config", str(own / "config/persistence.toml"))
    with (
        serving(tmp_path, dialect=stage.dialect, options=options, data=own / "var/data") as service,
        shell(tmp_path, service.port, {"PERSISTENCE_DIALECT": stage.dialect}) as sandbox,
    ):
        stage.prepare(service, sandbox)
        output = "".join(run(sandbox, block) for block in examples(page))
    found = statuses(output)
    assert found == STATUSES.get(page.name, "200 " * len(found)).split()
    assert [text for text in PRINTED.get(page.name, ()) if text not in output] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_and_a_known_reason(page: Path) -> None:
    found = blocks(page)
    assert [(block.line, block.language) for block in found if block.language not in _LANGUAGES] == []
    assert {block.not_run for block in found if block.not_run is not None} <= REASONS
    assert [block.line for block in found if block.not_run is not None and block.language not in _SHELL] == []


_READERS = {
    "json": json.loads,
    "xml": lambda text: ET.fromstring(f"<all xmlns:xs='http://www.w3.org/2001/XMLSchema'>{text}</all>"),  # noqa: S314
    "yaml": yaml.safe_load,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_data_is_well_formed(page: Path) -> None:
    for block in blocks(page):
        if block.language in _READERS:
            assert _READERS[block.language](block.text) is not None, block.line


def test_every_reason_is_needed() -> None:
    assert {block.not_run for page in PAGES for block in blocks(page)} - {None} == REASONS


def test_no_command_is_shown_outside_of_a_block_that_runs() -> None:
    """A command with values in it belongs into an ``sh`` block; the others are synopses, with words in capitals."""
    indented = [
        (page.name, line)
        for page in PAGES
        for line in re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text()).splitlines()
        if re.match(r" {4,}(\$ )?(\S*bin/)?(persistence|curl|make|git) ", line)
    ]
    assert indented == []


@pytest.mark.parametrize(("page", "test"), _ELSEWHERE.items())
def test_the_other_tests_run_these_pages(page: str, test: str) -> None:
    assert f"docs/{page}" in (ROOT / test).read_text()


def block(language: str, text: str) -> Block:
    return Block("planted.md", 1, language, None, text)


def test_an_example_that_fails_is_found(tmp_path: Path) -> None:
    with shell(tmp_path, 1) as sandbox:
        assert sandbox.run(block("sh", "X=1\necho $X\n")) == "1\n"
        assert sandbox.run(block("sh", "echo $((X + 1))\n")) == "2\n"
        with pytest.raises(AssertionError, match=r"planted\.md:1 failed:(.|\n)*No such command"):
            sandbox.run(block("sh", "persistence serf\necho done\n"))


def test_output_that_a_page_shows_wrongly_is_found(tmp_path: Path) -> None:
    with shell(tmp_path, 1) as sandbox:
        run(
            sandbox,
            block("console", "$ echo 'a  b'; false\na b\n$ echo at 2026-01-02T03:04:05Z\nat 2025-09-08T07:06:05Z\n"),
        )
        run(sandbox, block("console", "$ seq 9\n1\n…\n8\n9\n$ echo one two three\none … three\n"))
        for wrong in ("$ echo a\nb\n", "$ echo a\na\nb\n", "$ seq 3\n1\n…\n4\n", "$ echo a\n"):
            with pytest.raises(AssertionError):
                run(sandbox, block("console", wrong))


def test_a_block_that_nothing_runs_is_found() -> None:
    page = Path("planted.md")
    assert blocks(page, "```\npersistence check\n```\n")[0].language not in _LANGUAGES
    assert blocks(page, '```sh not-run="it is late"\nmake\n```\n')[0].not_run not in REASONS
    with pytest.raises(ValueError, match=r"planted\.md:2"):
        blocks(page, "\n```sh not-run\nmake\n```\n")
