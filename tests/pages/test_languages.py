"""The languages of the pages: each catalog has every text, with the same values in braces, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment
from werkzeug.datastructures import LanguageAccept

from persistence import pages
from persistence.pages.languages import TextReader, catalogs
from tests.orders import plant
from tests.pages.administrator import Browser, administrator
from tests.published import Planter

DIRECTORY = Path(pages.__path__[0])
_CALL = re.compile(r"translated\(\s*(['\"])(.*?)\1|'([^']+)' \| translated")
_PAIRS = re.compile(r"\('[a-z]+', '([^']+)'\)")
"""Labels in the loops of templates, whose body translates them."""


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


@pytest.mark.parametrize("language", sorted(catalogs()))
def test_a_catalog_has_every_text_and_no_other(language: str) -> None:
    catalog = catalogs()[language]
    wanted = {*texts_of_templates(), *translated_in_modules()}
    assert wanted - catalog.keys() == set()
    sources = "".join(path.read_text() for path in DIRECTORY.glob("templates/*.html"))
    others = catalog.keys() - wanted - {*texts_of_modules()}
    assert [each for each in others if f'"{each}"' not in sources] == []


@pytest.mark.parametrize("language", sorted(catalogs()))
def test_translations_have_the_same_values(language: str) -> None:
    for text, found in catalogs()[language].items():
        assert found.strip(), text
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", found)), text


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
