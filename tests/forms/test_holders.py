"""Holders of attachments in form data: spec forms 6.7."""

import pytest

from persistence.errors import BadRequestError
from persistence.forms.form_data import HolderReader
from persistence.limits import LARGEST_ATTACHMENT_LIST, LONGEST_PATH
from persistence.model.addresses import AttachmentRef, Collection, Form, definition_holder_path, parse_holder_path

CRUD = "/fr/service/persistence/crud"
FORM = Form("hr", "leave")
NAMED = [
    (f"{CRUD}/hr/leave/data/D/a.bin", AttachmentRef(FORM, Collection.DATA, "D", "a.bin")),
    (f"\n {CRUD}/hr/leave/draft/D/a.bin \n", AttachmentRef(FORM, Collection.DRAFT, "D", "a.bin")),
    (f"{CRUD}/hr/leave/form/a.bin", AttachmentRef(FORM, None, "", "a.bin")),
    (
        f"{CRUD}/h%20r/l%C3%A9/data/D/%C3%A4%20b.pdf?x=/y",
        AttachmentRef(Form("h r", "lé"), Collection.DATA, "D", "ä b.pdf"),
    ),
    (f"{CRUD}/hr/leave/data/D/data.xml", None),
    (f"{CRUD}/hr/leave/data/D/data.xml?a=b", None),
    (f"{CRUD}/hr/leave/form/form.xhtml", None),
    (f"{CRUD}/hr/leave/data/D/", None),
    (f"{CRUD}/hr/leave/data/D", None),
    (f"{CRUD}/hr/leave/other/D/a.bin", None),
    (f"{CRUD}/hr/leave/data/D/e/a.bin", None),
    (f"x{CRUD}/hr/leave/data/D/a.bin", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "held"), NAMED)
def test_what_a_text_names(text: str, held: AttachmentRef | None) -> None:
    assert parse_holder_path(text) == held


def test_the_path_of_a_definitions_attachment_names_it() -> None:
    form, name = Form("h r", "l/é"), "100% ä.pdf"
    assert parse_holder_path(definition_holder_path(form, name)) == AttachmentRef(form, None, "", name)


def found(document: str) -> list[tuple[str, str, bool]]:
    with HolderReader(lambda held: held.document == "D") as reader:
        for byte in document.encode():
            reader.feed(bytes([byte]))
        reader.finish()
        return [("/".join(holder.path), holder.held.name, holder.is_relevant) for holder in reader.holders]


def path(name: str, document: str = "D") -> str:
    return f"{CRUD}/hr/leave/data/{document}/{name}"


FR = 'xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
HOLDERS = [
    (f"<form><s><c>{path('a')}</c></s></form>", [("s/c", "a", True)]),
    (f"<form><s><c>\n  {path('a')}\n </c></s></form>", [("s/c", "a", True)]),
    (f"<form><c><_>{path('a')}</_><_>{path('b')}</_></c></form>", [("c/_", "a", True), ("c/_", "b", True)]),
    (f"<form><c><![CDATA[{path('a')}]]><!-- c --></c></form>", [("c", "a", True)]),
    (f"<form><c>{path('a')}<d/></c><e f='{path('a')}'/></form>", []),
    (f"<form><c>{path('a', 'other')}</c><d>no path</d><e/></form>", []),
    (f"<form><c>{path('a')}</c>{path('b')}</form>", [("c", "a", True)]),
    (f"<p:form xmlns:p='urn:p'><p:c>{path('a')}</p:c></p:form>", [("c", "a", True)]),
    (
        f"<form {FR}><c fr:relevant='false'>{path('a')}</c><s fr:relevant='false'><c>{path('b')}</c></s></form>",
        [("c", "a", False), ("s/c", "b", False)],
    ),
    (
        f"<form {FR}><c fr:relevant='false'/><c>{path('c')}</c><c fr:relevant='true'>{path('d')}</c></form>",
        [("c", "c", True), ("c", "d", True)],
    ),
]


@pytest.mark.parametrize(("document", "expected"), HOLDERS)
def test_holders(document: str, expected: list[tuple[str, str, bool]]) -> None:
    """An element without elements in it, whose text is a path below the document's own."""
    assert found(document) == expected


def test_what_a_list_of_attachments_takes_is_bounded() -> None:
    """An attack: holders with attributes of 3 MB, of which a document of 180 MB has 60, took 600 MB."""
    holder = f"<c a='{'y' * 900_000}\U0001f600'>{path('a')}</c>".encode()
    with HolderReader(lambda _: True) as reader:
        assert len(reader.read([b"<form>", *[holder] * 9, b"</form>"]).holders) == 9
    with HolderReader(lambda _: True) as reader, pytest.raises(BadRequestError, match=str(LARGEST_ATTACHMENT_LIST)):
        reader.read([b"<form>", *[holder] * 30, b"</form>"])


def test_a_text_longer_than_any_path_is_not_taken_apart() -> None:
    assert parse_holder_path(path("a") + "/" * LONGEST_PATH) is None
    assert parse_holder_path(f"{' ' * LONGEST_PATH}{path('a')}") is not None
