"""A form with marked controls, its data in every format, and what tests of encryption look at."""

import subprocess
from pathlib import Path

from tests.forms.vectors import Form, bind, cell, grid, published, section

SECRETS = ("078-05-1120 geheim", "first n\u00f6te of ada", "second note of ada")
"""The texts of the marked values."""

OPEN = "Ada Lovelace"


def _marked(name: str, kind: str = "input") -> str:
    return cell(name, kind).replace("/></fr:c>", f"><fr:encrypt/></xf:{kind}></fr:c>")


DEFINITION = published(
    Form(
        "<form/>",
        bind(
            "person",
            bind("top", "".join(map(bind, ("ssn", "name", "scan", "photo", "files"))))
            + bind("kids", bind("kids-iteration", bind("note"))),
        ),
        section(
            "person",
            grid(
                "top",
                _marked("ssn")
                + cell("name").replace(' bind="name-bind"', ' bind="name-bind" class="fr-index fr-summary"')
                + cell("scan", "upload").replace(' bind="scan-bind"', ' bind="scan-bind" class="a fr-encrypt"')
                + cell("photo", "upload")
                + _marked("files", "upload"),
            )
            + grid("kids", _marked("note", "textarea"), ' repeat="content"'),
        ),
    )
).encode()
"""``ssn``, ``note`` (repeated), ``scan`` and ``files`` (several) are marked; ``name`` and ``photo`` are not."""

UNMARKED = DEFINITION.replace(b"<fr:encrypt/>", b"").replace(b"fr-encrypt", b"")

HOLDERS = {
    "4.0.0": ("person/ssn", "person/scan", "person/files", "person/kids/note"),
    "4.8.0": ("person/ssn", "person/scan", "person/files", "person/kids/kids-iteration/note"),
    "2019.1.0": ("person/top/ssn", "person/top/scan", "person/top/files", "person/kids/kids-iteration/note"),
}
"""The paths of the marked controls, by data format."""


def path(form: str, document: str, name: str, collection: str = "data") -> str:
    """A holder path."""
    return f"/fr/service/persistence/crud/{form}/{collection}/{document}/{name}"


def data(data_format: str = "4.0.0", *, scan: str = "", photo: str = "", files: tuple[str, ...] = ()) -> bytes:
    """Data of the form with all its secrets; holders have the given texts."""
    items = "".join(f"<_ filename='f'>{each}</_>" for each in files)
    top = (
        f"<ssn>{SECRETS[0]}</ssn><name>{OPEN}</name><scan filename='s.bin'>{scan}</scan><photo>{photo}</photo>"
        f"<files>{items}</files>"
    )
    notes = [f"<note>{text}</note>" for text in SECRETS[1:]]
    if data_format == "4.0.0":
        rest = "".join(f"<kids>{note}</kids>" for note in notes)
    else:
        rest = "<kids>" + "".join(f"<kids-iteration>{note}</kids-iteration>" for note in notes) + "</kids>"
    if data_format == "2019.1.0":
        top = f"<top>{top}</top>"
    return f"<form><person>{top}{rest}</person></form>".encode()


def named(name: str) -> bytes:
    """Data of the form with another open text."""
    return data().replace(OPEN.encode(), name.encode())


def traces(root: Path, *texts: str | bytes) -> list[tuple[str, str | bytes]]:
    """Every file below a directory in which a text is found, in any of the ways in which it could be written."""
    found = []
    for file in (each for each in root.rglob("*") if each.is_file()):
        content = _content(file)
        found += [
            (str(file.relative_to(root)), text) for text in texts if any(way in content for way in _written(text))
        ]
    return found


def _content(file: Path) -> bytes:
    """Read a file; one of SQLite in a process of its own.

    Where a process closes a file, its locks of that file are gone, and a service in the same process loses SQLite's.
    """
    if ".sqlite" not in file.name:
        return file.read_bytes()
    return subprocess.run(["cat", str(file)], capture_output=True, check=file.exists()).stdout


def _written(text: str | bytes) -> set[bytes]:
    if isinstance(text, bytes):
        return {text}
    return {text.encode(), text.encode("utf-16-le"), ascii(text)[1:-1].encode(), text.casefold().encode()}
