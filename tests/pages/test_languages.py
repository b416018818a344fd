"""The languages of the pages: each catalog has every text, with the same values in braces, and nothing else.

Texts are those of templates, and the sentences that modules, commands and other functions say for the pages to show.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import chain, product
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import Environment
from werkzeug.datastructures import LanguageAccept

from persistence import pages
from persistence.maintenance.records import CheckTotals
from persistence.model.permissions import OPERATIONS
from persistence.pages.languages import TextReader, catalogs, translated
from persistence.properties.property_table import KNOWN
from persistence.settings import MEANINGS
from persistence.storage.findings import Finding, FindingKind, Severity
from persistence.storage.layout import PAGES
from tests import test_messages
from tests.orders import plant
from tests.pages.administrator import Browser, administrator
from tests.published import Planter

DIRECTORY = Path(pages.__path__[0])
_CALL = re.compile(r"translated\(\s*(['\"])(.*?)\1|'([^']+)' \| translated")
_PAIRS = re.compile(r"\('[a-z]+', '([^']+)'\)")
"""Labels in the loops of templates, whose body translates them."""

SPOKEN: dict[str, tuple[str, ...]] = {
    **{f"pages/{path.name}": () for path in sorted(DIRECTORY.glob("*.py"))},
    **{f"maintenance/{name}.py": () for name in ("check", "repair", "storage_check", "tree_walk")},
    "index/sync/index_check.py": (),
    "postgresql/database_check.py": (),
    "audit/verification.py": (),
    "services/shown_documents.py": (),
    "forms/diffs.py": ("change_of",),
    "services/histories.py": ("RestorePlan",),
    "maintenance/reports.py": ("SOURCES", "_CONDITIONS", "whom", "_condition"),
    "maintenance/records.py": ("remark",),
    "keys.py": ("WITHOUT_KEYS", "warnings_of", "limited_administrators"),
    "providers/opened.py": ("shortage",),
    "providers/locations.py": ("served_locations",),
    "cli/tree_commands.py": ("_reindex", "_reindex_database"),
    "cli/auditing.py": ("verify_audit",),
}
"""What makes findings and their remedies, causes, warnings, and the results of jobs: modules, or parts of them."""

STATUSES = (400, 403, 404, 405, 409, 410, 412, 423, 429, 500, 501, 502, 503, 504, 507)
TABLES: dict[str, Iterable[str]] = {
    "remedies": [*(each.deed for each in FindingKind), Finding(FindingKind.EDITED, "", "", is_lost=True).deed],
    "severities": [each.value for each in Severity],
    "settings": MEANINGS.values(),
    "properties": [f"{each.meaning}; {each.effect.value}" for each in KNOWN],
    "permissions": ["owner", "group member", "anyone", "everyone", "nobody", "role clerk or boss", *OPERATIONS],
    "names": ["group of the owner", "stage", "owner"],
    "definitions": ["section", "grid", "repeat", "added", "removed", "2 iterations added: 1, 3"],
    "jobs": ["waiting", "encrypting", "finished", "stopped", "compared", "reindexed"],
    "places": ["forms", "attachments"],
    "errors": [HTTPStatus(each).phrase for each in STATUSES],
    "values": ["Yes", "No"],
}
"""Words and sentences that are told apart by more than their place in a module."""
FRAMES = (
    *("{}; in effect", "{}; without effect in this version", "Error: {}", "persistence: {}", "note: {}"),
    *("{}, nothing is wrong", "1 form", "{} forms", "1 line", "{} lines", "{} lines, {}", "key {} is", "keys {} are"),
    *("role {}", "edited by hand since {}; it is served as it is, but {}"),
)
"""What stands around other texts, and numbers in words."""
SAME = {"section"}
"""Words that a language has, too."""

SILENT = (
    "disk_errors",
    "disk_error",
    "closed",
    "execute",
    "Jobs",
    "child",
    "click.option",
    "exits",
    "command",
    "KeyFile",
)
"""The ends of names of calls whose texts only the log has, or nobody."""
NOT_SHOWN = {
    *("form = %s AND kind = %s AND folder = %s AND name = %s", "content {}", "the index of {}"),  # places
    *("cannot be read: ", "is damaged: ", "{}, but {}", "{} in {}"),  # parts, and errors as they are
    *("{} bytes {}", "would be adopted: {} -> {} bytes {}", "{}; its sidecar says: {}", "stored at {}", "as it is"),
    *("no older revision to compare with is left", "revision of {}", "too large to be compared with the {}"),
    *("... and {} more lines", "the environment", "head {}:{}", "looking at"),
    *("looking what is being moved to", "beginning to move", "ending a move to", "moving drafts to"),
    *("looking what was moved to", "counts of forms", "uses of keys", "failed logins"),
    "others are writing the audit",
}
"""Sentences of ``SPOKEN`` that no page shows: most are said with options that the pages do not give."""

_SENTENCE = re.compile(r"[a-z]{2},? |[ ][a-z]{2}")
_NO_TEXT = re.compile(
    r"[A-Z]{5}|-(src|ancestors|uri|action) |^text/|max-age|filename|^/|^<|^status |^(\w+ )*[a-z]+_\w+( \w+)*$"
)
"""SQL, policies, types, paths, markup, outcomes in the audit, and names of settings."""


def texts_of_templates() -> Iterator[str]:
    """The texts between tags, and those of calls."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=True)
    for path in sorted(DIRECTORY.glob("templates/*.html")):
        source, reader = path.read_text(), TextReader()
        for _, kind, value in environment.lex(source):
            if kind == "data":
                yield from (piece for piece, is_text in reader.pieces(value) if is_text)
        yield from (match[2] or match[3] for match in _CALL.finditer(source))
        for loop in re.findall(r"\{% for \w+, label in .*? %\}", source):
            yield from _PAIRS.findall(loop)


def texts_of_modules() -> Iterator[str]:
    """The literals of modules: a text is translated there, or stands in a table of texts that are."""
    for path in sorted(DIRECTORY.glob("*.py")):
        yield from (str(node.value) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))


def translated_in_modules() -> Iterator[str]:
    for path in sorted(DIRECTORY.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "translated":
                words = node.args[0]
                found = (words.body, words.orelse) if isinstance(words, ast.IfExp) else (words,)
                yield from (str(each.value) for each in found if isinstance(each, ast.Constant))


def shape(text: str) -> str:
    return re.sub(r"(\{\w*\})+", "{}", text)


def sentences(module: str) -> list[str]:
    """Return the sentences of a module, or of the parts that ``SPOKEN`` names, with ``{}`` for values."""
    silent = SILENT if module.startswith("pages/") else (*SILENT, "Error")
    tree, names = ast.parse((DIRECTORY.parent / module).read_text()), SPOKEN[module]
    parts: list[ast.AST] = [tree] if not names else []
    for node in ast.walk(tree) if names else ():
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                parts += [node] if name in names else []
    assert parts
    return [each for part in parts for each in sentences_in(part, silent)]


def sentences_in(node: ast.AST, silent: tuple[str, ...]) -> Iterator[str]:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return
        case ast.Call(func=function) if ast.unparse(function).endswith(silent):
            return
        case ast.Constant() | ast.JoinedStr():
            found = (each for each in spelled(node) if _SENTENCE.search(each) and not _NO_TEXT.search(each))
            yield from (each for each in map(shape, found) if each not in NOT_SHOWN)
        case _:
            for inner in ast.iter_child_nodes(node):
                yield from sentences_in(inner, silent)


def spelled(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield from map("".join, product(*(list(spelled(part)) for part in parts)))
        case ast.FormattedValue(value=ast.IfExp(body=ast.Constant(value=one), orelse=ast.Constant(value=other))):
            yield from (str(one), str(other))
        case ast.FormattedValue():
            yield "{}"


@pytest.mark.parametrize("language", sorted(catalogs()))
def test_a_catalog_has_every_text_and_no_other(language: str) -> None:
    catalog = catalogs()[language]
    wanted = {*texts_of_templates(), *translated_in_modules()}
    assert wanted - catalog.keys() == set()
    sources = "".join(path.read_text() for path in DIRECTORY.glob("templates/*.html"))
    said = [*chain.from_iterable(map(sentences, SPOKEN)), *chain.from_iterable(TABLES.values())]
    said += [*FRAMES, *(each.meaning for each in KNOWN), *test_messages.TABLE.read_text().splitlines()]
    others = {shape(each) for each in catalog} - {shape(each) for each in (*wanted, *said, *texts_of_modules())}
    assert [each for each in others if f'"{each}"' not in sources] == []


@pytest.mark.parametrize("language", sorted(catalogs()))
@pytest.mark.parametrize("module", SPOKEN)
def test_every_sentence_that_is_shown_has_a_translation(module: str, language: str) -> None:
    known = {shape(each) for each in catalogs()[language]}
    assert [each for each in sentences(module) if each not in known] == []


@pytest.mark.parametrize("language", sorted(catalogs()))
@pytest.mark.parametrize("name", TABLES)
def test_every_remedy_setting_and_word_of_a_table_is_translated(name: str, language: str) -> None:
    with Flask("pages").test_request_context(headers={"Accept-Language": language}):
        assert [each for each in TABLES[name] if translated(each) == each and each not in SAME] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "its digest is not ab; no older revision is whole",
            "seine Prüfsumme ist nicht ab; kein älterer Stand ist ganz",
        ),
        ("a.jsonl, line 5: lines 3 to 4 are missing before it", "a.jsonl, Zeile 5: davor fehlt: Zeilen 3 bis 4"),
        ("7 lines, nothing is wrong\nhead 7:ab", "7 Zeilen, nichts ist falsch\nhead 7:ab"),
        (
            "reindexed 3 documents and drafts of 1 form in 0.1 s (9 a second)",
            "neu indiziert: 3 Dokumente und Entwürfe ",
        ),
        ("there is no form {app}/{0}", "es gibt kein Formular {app}/{0}"),
        ("No space left on device", "No space left on device"),
        ("note: " * 500, "Hinweis: Hinweis: Hinweis: note: "),
    ],
)
def test_a_finished_sentence_is_recognised_with_its_values(text: str, expected: str) -> None:
    with Flask("pages").test_request_context(headers={"Accept-Language": "de"}):
        assert translated(text).startswith(expected)


@pytest.mark.parametrize("language", sorted(catalogs()))
def test_translations_have_the_same_values(language: str) -> None:
    for text, found in catalogs()[language].items():
        assert found.strip(), text
        named = sorted(re.findall(r"\{\w+\}", text))
        assert sorted({*named}) == named, text
        assert [each for each in named if each != "{it}"] == sorted(re.findall(r"\{\w+\}", found)), text


@pytest.fixture
def found(tmp_path: Path) -> Browser:
    with Planter(tmp_path / "data") as planter:
        plant(planter)
    return administrator(tmp_path)


@pytest.mark.parametrize(
    ("accepted", "language", "heading"),
    [
        ("de-CH, de;q=0.9, en;q=0.5", "de", "Dokumente"),
        ("fr", "fr", "Documents"),
        ("es, en;q=0.1", "en", "Documents"),
        ("nl", "en", "Documents"),
    ],
)
def test_pages_are_in_the_language_of_the_browser(found: Browser, accepted: str, language: str, heading: str) -> None:
    page = found.get("/admin/forms/acme/order", headers={"Accept-Language": accepted}).text
    assert f'<html lang="{language}">' in page
    assert f"<h2>{heading}</h2>" in page
    for path in ("/admin/", "/admin/forms", "/admin/health", "/admin/keys", "/admin/settings", "/admin/search?q=x"):
        assert found.get(path, headers={"Accept-Language": accepted}).status_code == 200
    asked = "/admin/actions/document-delete/acme/order?document=d-1&document=d-2"
    found.get(asked, headers={"Accept-Language": accepted})
    questions = {"de": "2 Dokumente von acme/order löschen?", "fr": "Supprimer 2 documents de acme/order ?"}
    assert questions.get(language, "Delete 2 documents of acme/order?") in found.text


def test_the_language_is_chosen_once_for_a_page(found: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long header takes milliseconds to compare, and a page has hundreds of texts."""
    asked = []
    best = LanguageAccept.best_match
    monkeypatch.setattr(LanguageAccept, "best_match", lambda *values: asked.append(values) or best(*values))
    found.get("/admin/forms/acme/order", headers={"Accept-Language": "de"})
    assert len(asked) == 1


def test_texts_are_found_between_tags_and_in_labels() -> None:
    reader = TextReader()
    parts = ['<p class="a" title="A title">Text ', " more</p><code>not this</code><a href=", '">Link</a> 5 <br>']
    found = [piece for part in parts for piece, is_text in reader.pieces(part) if is_text]
    assert found == ["A title", "Text", "more", "Link"]


def test_what_commands_and_errors_say_is_in_the_language_of_the_browser(found: Browser, tmp_path: Path) -> None:
    output = tmp_path / "data" / PAGES / "check.out"
    output.parent.mkdir(exist_ok=True)
    finding = {"path": "acme/order/data/d-1/data.xml", "kind": "digest-wrong", "severity": "damage", "outcome": "found"}
    finding |= {"what": "its digest is not ab", "does": FindingKind.DIGEST_WRONG.deed, "remedy": "--repair"}
    totals = dict.fromkeys(CheckTotals.__struct_fields__, 0) | {"damage": 1, "remaining": 1}
    output.write_text("".join(f"{each}\n" for each in ('{"began":1.0}', json.dumps(finding), json.dumps(totals))))
    german = {"Accept-Language": "de"}
    found.get("/admin/health", headers=german)
    assert "Schaden" in found.text
    assert "digest-wrong : seine Prüfsumme ist nicht ab" in found.text
    assert "geht zum neuesten ganzen Stand zurück" in found.text
    path = "/admin/actions/mend?path=acme/order/data/d-1/data.xml&kind=digest-wrong&tree="
    found.get(path, headers=german)
    assert "seine Prüfsumme ist nicht ab: geht zum neuesten" in found.text
    assert "acme/order/data/d-1/data.xml reparieren?" in found.text
    found.get("/admin/settings", headers=german)
    assert "Threads in jedem Prozess" in found.text
    assert "Entwürfe können gespeichert werden; in Kraft" in found.text
    found.get("/admin/forms/acme/order/1/definition", headers=german)
    assert "weder die Definition noch eine Eigenschaft legt welche fest" in found.text
    assert found.get("/admin/forms/acme/nothing", headers=german).status_code == 404
    assert "Nicht gefunden es gibt kein Formular acme/nothing" in found.text
