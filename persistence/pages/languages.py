"""The language of the pages: texts stand in the templates in English, and in a catalog for each other language.

A catalog is a file of JSON with the English texts as names. An extension of Jinja wraps each text between tags, and
each label of an element, into a lookup when a template is compiled, so that templates are plain HTML to read and write.

What commands print and errors say comes as finished sentences. They are recognised by their words: a text of a catalog
has names in braces for its values, and ``{text}``, ``{text2}`` for values that are texts of the catalog themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Formatter

from flask import g, has_request_context, request
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

Pattern = tuple[tuple[str, ...], tuple[str, ...], str]
"""A text with values: the words around them, their names, and the translation."""

ENGLISH = "en"
_LABELS = ("aria-label=", "placeholder=", "alt=", "title=")
_LETTERS = re.compile(r"[A-Za-z]{2}")
_NESTED = 3
"""How deep texts within texts are translated."""
_ANGLE = re.compile(r"([<>])")


@cache
def catalogs() -> Mapping[str, Mapping[str, str]]:
    found = (each for each in files(__package__).joinpath("translations").iterdir() if each.name.endswith(".json"))
    return {each.name.removesuffix(".json"): json.loads(each.read_text("utf-8")) for each in found}


def page_language() -> str:
    """Return the language of the pages that the browser prefers (``Accept-Language``)."""
    if not has_request_context():
        return ENGLISH
    if "language" not in g:  # which takes milliseconds for a long header, and a page has hundreds of texts
        known = sorted(catalogs(), key=lambda each: each != ENGLISH)
        g.language = request.accept_languages.best_match((ENGLISH, *known)) or ENGLISH
    return str(g.language)


def language_of(known: Iterable[str]) -> str | None:
    """Return the language of a form's labels: the one asked for, else that of the page; ``None`` is the first."""
    asked, own = request.args.get("lang") if has_request_context() else None, page_language()
    return asked or (own if own in known else None)


def translated(text: str, **values: object) -> str:
    """Return a text in the language of the request, with ``values`` in its braces, or recognised with those it has."""
    language = page_language()
    if language != ENGLISH and not values:
        return "\n".join(_recognised(line, language, _NESTED) for line in text.split("\n"))
    found = catalogs().get(language, {}).get(text, text)
    return found.format(**values) if values else found


@cache
def _patterns(language: str) -> list[Pattern]:
    """Return the texts with values of a catalog, those with the most words first."""
    found = list[Pattern]()
    for text, translation in catalogs()[language].items():
        parts = list(Formatter().parse(text))
        if names := tuple(name for _, name, _, _ in parts if name):
            words = tuple(literal for literal, _, _, _ in parts)
            found.append((words if len(words) > len(names) else (*words, ""), names, translation))
    return sorted(found, key=lambda each: -sum(map(len, each[0])))


def _recognised(text: str, language: str, depth: int) -> str:
    if depth == 0 or text in catalogs()[language]:
        return catalogs()[language].get(text, text)
    for words, names, translation in _patterns(language):
        if not (text.startswith(words[0]) and text.endswith(words[-1])):  # quickly: a page may have a thousand texts
            continue
        if values := dict(zip(names, between(words, text), strict=False)):
            texts = {name: value for name, value in values.items() if name.startswith("text")}
            nested = {name: _recognised(value, language, depth - 1) for name, value in texts.items()}
            return translation.format(**(values | nested))
    return text


def between(words: Sequence[str], text: str) -> list[str]:
    """Return the values between the words of a sentence that begins and ends with them; none for another sentence."""
    first, *inner, last = words
    if len(text) <= len(first) + len(last):
        return []
    values, rest = list[str](), text[len(first) : len(text) - len(last)]
    for each in inner:
        value, is_there, rest = rest.partition(each)
        if not is_there:
            return []
        values.append(value)
    return [*values, rest]


class Translating(Extension):
    """Wraps the texts of a template into calls of ``translated``."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        reader = TextReader()
        for token in stream:
            if token.type != "data":
                yield token
                continue
            for piece, is_text in reader.pieces(token.value):
                pairs: tuple[tuple[str, str], ...] = (("data", piece),)
                if is_text:
                    call = ("name", "translated"), ("lparen", "("), ("string", piece), ("rparen", ")")
                    pairs = (("variable_begin", "{{"), *call, ("variable_end", "}}"))
                yield from (Token(token.lineno, *pair) for pair in pairs)


class TextReader:
    """Finds the texts in the HTML of one template, whose tags may go on from one part to the next."""

    def __init__(self) -> None:
        self._is_in_tag = False
        self._is_code = False

    def pieces(self, html: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a piece of HTML in order, each with whether it is a text to translate."""
        for part in _ANGLE.split(html):
            if part in {"<", ">"}:
                self._is_in_tag = part == "<"
                yield part, False
            elif self._is_in_tag:
                self._is_code = part.startswith(("code", "script", "style"))
                yield from self._labels(part)
            else:
                yield from self._text(part)

    def _labels(self, tag: str) -> Iterator[tuple[str, bool]]:
        parts = tag.split('"')
        for at, part in enumerate(parts):
            is_label = 0 < at < len(parts) - 1 and parts[at - 1].endswith(_LABELS)
            yield part, is_label and _LETTERS.search(part) is not None
            if at < len(parts) - 1:
                yield '"', False

    def _text(self, text: str) -> Iterator[tuple[str, bool]]:
        if self._is_code or not _LETTERS.search(text):
            yield text, False
            return
        begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
        yield text[:begin], False
        yield " ".join(text.split()), True
        yield text[end:], False
