"""The values of a document, and the differences of two revisions, as a person reads them: for every kind of control."""

import re
from html import escape
from pathlib import Path

import pytest

from persistence import limits
from persistence.forms.controls import NO_OUTLINE, Label, OutlineNode, read_outline
from persistence.forms.diffs import DataNode, Difference, DiffKind, HeldValue
from persistence.limits import ITEMS_SHOWN, LONGEST_VALUE, MOST_ALIGNED, REPEAT_ROWS
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.versions import V4_0_0
from persistence.pages import document_pages
from persistence.pages.site import rich_text
from persistence.services import shown_documents
from persistence.services.shown_documents import plain_text, shown_changes, shown_values
from tests.pages.administrator import CRUD, Browser, administrator
from tests.published import Planter

FORM = Form("town", "permit")
ADDRESS = DocumentAddress(FORM, Collection.DATA, "d", DATA_XML)
PAGE = f"/admin/forms/{FORM}/data/d"
FIRST, LAST = "2024-05-02T10:00:00.000Z", "2024-05-04T09:30:00.000Z"
RICH = "<p onclick='x()'>Fine <b>work</b></p><script>no</script>"
PICTURE = "data:image/png;base64,iVBORw0KGgo="
CONTROLS = {
    "title": ("xf:input", "", "<fr:index/>"),
    "kind": ("xf:select1", "", '<fr:index/><xf:itemset ref="$form-resources/kind/item"/>'),
    "tags": ("xf:select", "", '<fr:index/><xf:itemset ref="$form-resources/tags/item"/>'),
    "colour": ("xf:select1", "", "<xf:item><xf:label>Deep red</xf:label><xf:value>r</xf:value></xf:item>"),
    "review": ("fr:tinymce", "", ""),
    "agreed": ("fr:checkbox-input", "xf:boolean", ""),
    "cost": ("fr:currency", "xf:decimal", ""),
    "at": ("fr:datetime", "xf:dateTime", ""),
    "signed": ("fr:handwritten-signature", "xf:anyURI", ""),
    "note": ("fr:explanation", "", ""),
    "file": ("fr:attachment", "xf:anyURI", ""),
}
ITEMS = {"kind": {"res": "Residential", "com": "Commercial"}, "tags": {"a": "Alpha", "b": "Beta"}}


def definition() -> bytes:
    """A form with a control of each kind in a section, and a repeat of two controls."""

    def item(labels: dict[str, str]) -> str:
        found = (f"<item><label>{label}</label><value>{value}</value></item>" for value, label in labels.items())
        return "".join(found)

    binds = "".join(f'<xf:bind id="{n}-bind" ref="{n}" name="{n}" type="{t}"/>' for n, (_, t, _) in CONTROLS.items())
    resources = "".join(f"<{n}><label>The {n}</label>{item(ITEMS.get(n, {}))}</{n}>" for n in CONTROLS)
    view = "".join(
        f'<{tag} id="{n}-control" bind="{n}-bind"><xf:label ref="$form-resources/{n}/label"/>{inside}</{tag}>'
        for n, (tag, _, inside) in CONTROLS.items()
    )
    return f"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
     xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
     <xf:instance id="fr-form-instance"><form/></xf:instance>
     <xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
      <xf:bind id="s-bind" ref="s" name="s">{binds}
       <xf:bind id="rows-bind" ref="rows" name="rows">
        <xf:bind id="rows-iteration-bind" ref="rows-iteration" name="rows-iteration">
         <xf:bind id="what-bind" ref="what" name="what"/><xf:bind id="many-bind" ref="many" name="many"/>
        </xf:bind></xf:bind></xf:bind></xf:bind>
     <xf:instance id="fr-form-metadata"><metadata><title>Permit</title></metadata></xf:instance>
     <xf:instance id="fr-form-resources"><resources><resource xml:lang="en"><s><label>All of it</label></s>{resources}
      <what><label>What</label></what><many><label>Many</label></many></resource></resources></xf:instance>
     </xf:model></xh:head><xh:body><fr:view><fr:body><fr:section id="s-section" bind="s-bind">
     <xf:label ref="$form-resources/s/label"/>{view}
     <fr:grid id="rows-grid" bind="rows-bind" repeat="content"><xf:input id="what-control" bind="what-bind"/>
      <xf:input id="many-control" bind="many-bind"/></fr:grid></fr:section></fr:body></fr:view>
     </xh:body></xh:html>""".encode()


def data(rows: str = "", **values: str) -> bytes:
    inside = "".join(values.get(name, f"<{name}/>") for name in CONTROLS)
    head = '<form xmlns:fr="http://orbeon.org/oxf/xml/form-runner">'
    return f"{head}<s>{inside}<rows>{rows}</rows></s></form>".encode()


def row(what: str, many: str) -> str:
    return f"<rows-iteration><what>{what}</what><many>{many}</many></rows-iteration>"


def filled(**own: str) -> bytes:
    values = {
        "title": "<title>A garage</title>",
        "kind": "<kind>com</kind>",
        "tags": "<tags>a b</tags>",
        "colour": "<colour>r</colour>",
        "review": f"<review>{escape(RICH)}</review>",
        "agreed": "<agreed>true</agreed>",
        "cost": "<cost>240000.5</cost>",
        "at": "<at>2024-05-02T10:00:00</at>",
        "signed": f"<signed>{PICTURE}</signed>",
        "file": f"""<file filename="Plan März.pdf" mediatype="application/pdf">{CRUD}/{FORM}/data/d/0123.bin</file>""",
    }
    return data(row("Sand", "3") + row("Lime", "4"), **values | own)


@pytest.fixture
def found(tmp_path: Path) -> Browser:
    with Planter(tmp_path / "data") as planter:
        planter.define(str(FORM), 1, definition(), FIRST)
        planter.save(str(FORM), "d", filled(), FIRST, User("bob"))
    return administrator(tmp_path, trusted=("127.0.0.1",))


def test_each_kind_of_control_is_shown_as_its_user_knows_it(found: Browser) -> None:
    chosen = (
        "A garage",
        "The kind Commercial com",
        "The tags Alpha a Beta b",
        "The colour Deep red r",
        "The agreed Yes",
    )
    typed = ("The cost 240 000.5", "The at 2024-05-02 10:00:00", "The file Plan März.pdf", "What Many Sand 3 Lime 4")
    found.shows(PAGE, *chosen, *typed)
    page = found.page.text
    assert "The agreed Ja" in (found.get(PAGE, headers={"Accept-Language": "de"}) and found.text)
    assert "<p>Fine <b>work</b></p>" in page
    assert "&lt;script&gt;no" in page  # in the markup that is shown as text
    assert f'src="{PICTURE}"' in page
    assert "The note" not in found.text
    assert re.search(r"<h1>\s*<bdi>A garage · Commercial</bdi>", page)


def test_empty_and_irrelevant_controls_are_folded(found: Browser, tmp_path: Path) -> None:
    with Planter(tmp_path / "data") as planter:
        own = {"title": "<title/>", "kind": '<kind fr:relevant="false">com</kind>'}
        planter.save(str(FORM), "d", filled(**own), LAST, User("bob"))
    found.get(PAGE)
    before, folded = found.text.split("2 fields that are empty or do not apply")
    assert "The kind" not in before
    assert "The title \N{EN DASH}" in folded
    assert "The kind Commercial com does not apply" in folded


def test_a_repeat_is_a_table_of_so_many_rows(found: Browser, tmp_path: Path) -> None:
    with Planter(tmp_path / "data") as planter:
        rows = "".join(row(f"w{number}", "") for number in range(REPEAT_ROWS + 5))
        planter.save(str(FORM), "d", data(rows), LAST, User("bob"))
    found.get(PAGE)
    assert "What w0 w1 w2" in found.text  # the column without a value is left out
    assert f"w{REPEAT_ROWS - 1} 5 more rows are in the XML." in found.text


def test_changes_are_told_word_by_word_and_row_by_row(found: Browser, tmp_path: Path) -> None:
    with Planter(tmp_path / "data") as planter:
        newer = {
            "title": "<title>A large garage</title>",
            "kind": "<kind>res</kind>",
            "review": "<review>&lt;p&gt;Fine &lt;i&gt;work&lt;/i&gt;&lt;/p&gt;</review>",
            "signed": f"<signed>{PICTURE}AAAA</signed>",
        }
        body = (
            filled(**newer)
            .replace(row("Sand", "3").encode(), b"")
            .replace(row("Lime", "4").encode(), (row("Lime", "4") + row("Clay", "5")).encode())
        )
        planter.save(str(FORM), "d", body, LAST, User("bob"))
    page = found.get(f"{PAGE}/changes?older={FIRST}&newer={LAST}").text
    assert "A <ins>large </ins>garage" in page
    assert "<del>Commercial</del>" in page
    assert "<ins>Residential</ins>" in page
    assert "Only the markup, or the file, differs." in found.text
    assert page.count('<img class="inline"') == 2
    assert "What: Sand Many: 3 \N{EN DASH}" in found.text
    assert "\N{EN DASH} What: Clay Many: 5" in found.text


def test_a_download_has_the_name_that_the_data_gives_the_file(found: Browser) -> None:
    assert found.crud("PUT", f"{FORM}/data/d/0123.bin", b"%PDF", "application/pdf").status_code == 201
    answer = found.get(f"{PAGE}/attachments/0123.bin")
    assert answer.headers["Content-Disposition"] == (
        "attachment; filename=\"Plan_M_rz.pdf\"; filename*=UTF-8''Plan%20M%C3%A4rz.pdf"
    )
    found.shows(PAGE, "Plan März.pdf application/pdf")
    assert 'filename="d.xml"' in found.get(f"{PAGE}/data.xml").headers["Content-Disposition"]


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("<p style='x' onclick=y>a</p>", "<p>a</p>"),
        ("<script>alert(1)</script>b", "b"),
        ("<img src=x onerror=alert(1)>c", "c"),
        ("<a href='javascript:alert(1)'>d</a>", '<a rel="noopener noreferrer">d</a>'),
        ("<a href='https://example.org/'>e</a>", '<a href="https://example.org/" rel="noopener noreferrer">e</a>'),
        ("<h1>f</h1>", "f"),
        ("<a href='/admin/actions/x'>l</a>", '<a rel="noopener noreferrer">l</a>'),
        ("<a href='//example.org/'>m</a>", '<a rel="noopener noreferrer">m</a>'),
        ("<iframe src='data:text/html,x'></iframe>g", "g"),
        ("<b>h", "<b>h</b>"),
        ("<svg><style><img src=x onerror=y></style></svg>i", "i"),
    ],
)
def test_rich_text_keeps_what_is_harmless(given: str, safe: str) -> None:
    assert rich_text(given) == safe


def test_rich_text_is_plain_where_texts_are_compared() -> None:
    assert plain_text("<p>a &amp; b</p><p>c<br>d</p>") == "a & b\nc\nd"
    assert len(plain_text("<p>" + "x" * 2 * LONGEST_VALUE)) <= LONGEST_VALUE + 1


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("integer", "2024", "2024"),
        ("decimal", "-1234567.25", "-1\u202f234\u202f567.25"),
        ("decimal", "1" * 31, "1" * 31),
        ("integer", "about 12345", "about 12345"),
        ("string", "1234567", "1234567"),
        ("boolean", "false", "No"),
        ("boolean", "perhaps", "perhaps"),
        ("date", "2024-05-02", "2024-05-02"),
    ],
)
def test_values_are_shown_by_their_type(kind: str, text: str, shown: str) -> None:
    [value] = shown_values(HeldValue(text), OutlineNode(is_control=True, type=kind), ADDRESS, None)
    assert value.text == shown


@pytest.mark.parametrize("kind", ["image/svg+xml", "text/html"])
def test_only_pictures_without_scripts_are_shown_as_pictures(kind: str) -> None:
    [value] = shown_values(HeldValue(f"data:{kind};base64,PHN2Zz4="), OutlineNode(is_control=True), ADDRESS, None)
    assert (value.image, value.text) == ("", f"[{kind}, 1 KB]")
    [value] = shown_values(HeldValue(f'{PICTURE}"onerror=x'), OutlineNode(is_control=True), ADDRESS, None)
    assert value.image == ""


def test_of_very_many_items_the_value_is_shown() -> None:
    """A letter of a value stands for a label, of any length: a small document must not become a page of megabytes."""
    labels = {"a": Label({"": "All of it"}, is_html=False)}
    node = OutlineNode(is_control=True, kind="select", choices=labels)
    assert {each.text for each in shown_values(HeldValue("a " * ITEMS_SHOWN), node, ADDRESS, None)} == {"All of it"}
    [value] = shown_values(HeldValue("a " * 300_000), node, ADDRESS, None)
    assert (value.text[:4], len(value.text), value.raw) == ("a a ", LONGEST_VALUE + 1, "")
    node.choices = {"a": Label({"": "x" * 20_000}, is_html=False)}
    [change] = shown_changes(
        [Difference(DiffKind.VALUE_CHANGED, node, (("t", 0),), HeldValue("a a"), HeldValue("a a a"))], ADDRESS, None
    )
    assert change.newer is not None
    assert len(change.newer.text) == LONGEST_VALUE + 1


def test_the_values_of_a_page_and_the_changes_are_bounded_together(found: Browser, tmp_path: Path) -> None:
    many = "".join(row("Sand " * 40, "3") for _ in range(50))
    with Planter(tmp_path / "data") as planter:
        body = data(many, title="<title>A garage</title>", tags=f"<tags>{'a ' * ITEMS_SHOWN}</tags>")
        planter.save(str(FORM), "d", body, LAST, User("bob"))
    page = found.get(PAGE).text
    assert page.count('<bdi class="text">Sand') == 50
    changes = f"{PAGE}/changes?older={FIRST}&newer={LAST}"
    assert "These are the first" not in (found.get(changes) and found.text)
    with pytest.MonkeyPatch.context() as patch:
        for module in (limits, document_pages):
            patch.setattr(module, "MOST_SHOWN", 15_000)
        page = found.get(PAGE).text
        assert 0 < page.count('<bdi class="text">Sand') < 50
        assert "lines are shown: download the XML for the rest" in page
        found.shows(changes, "These are the first")


def test_an_element_that_stands_very_often_is_not_searched_for_every_control_each_time() -> None:
    node = DataNode(inside={"s": [DataNode() for _ in range(1000)]})
    controls = {f"c{number}": OutlineNode(f"c{number}", is_control=True) for number in range(100)}
    outline = OutlineNode(inside={"s": OutlineNode(inside=controls)})
    reader = shown_documents._Reader(ADDRESS, None)  # noqa: SLF001 - what it counts is seen nowhere else
    reader.left = 5000
    assert list(reader.lines(node, outline, 0)) == []
    assert -200 < reader.left <= 0


def test_texts_are_compared_for_a_bounded_time() -> None:
    """The middle of texts with too many words differs as a whole, their beginnings and ends are still compared."""
    words = int(MOST_ALIGNED**0.5) + 1
    node = OutlineNode(is_control=True)
    found = Difference(
        DiffKind.VALUE_CHANGED, node, (("t", 0),), *map(HeldValue, (f"a {'b c ' * words}d", f"a {'c e ' * words}d"))
    )
    [change] = shown_changes([found], ADDRESS, None)
    assert change.pieces is not None
    for pieces in change.pieces:
        assert (pieces[0], pieces[-1]) == (("a ", False), (" d", False))
        assert all(differs for text, differs in pieces[1:-1] if text.strip())


def test_a_table_shows_items_by_their_labels_and_offers_them_as_filters(found: Browser, tmp_path: Path) -> None:
    with Planter(tmp_path / "data") as planter:
        planter.save(
            str(FORM), "e", filled(title="<title>A shed</title>", kind="<kind>res</kind>"), LAST, User("ann"), "new"
        )
    page = found.get(f"/admin/forms/{FORM}").text
    assert "Residential" in found.text
    assert re.search(r'<select id="f-c.s/kind".*?<option value="res">Residential</option>', page, re.DOTALL)
    assert re.search(r'<select id="f-stage".*?<option value="new">new</option>', page, re.DOTALL)
    assert re.search(r'<select id="f-owner".*?<option value="ann">', page, re.DOTALL)
    only = found.get(f"/admin/forms/{FORM}?c.s/kind=res&col=s/kind&col=owner&col=nothing").text
    assert re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a>', only) == ["Residential"]
    assert "A shed" not in only
    assert re.search(r'href="[^"]*col=s/kind&amp;col=owner[^"]*"', only)  # links keep the columns
    found.shows(f"/admin/forms/{FORM}?c.s/tags=b&stage=new", "1 found")


def test_documents_of_the_designer_are_listed_with_the_names_of_their_forms(tmp_path: Path) -> None:
    metadata = "<application-name>town</application-name><form-name>permit</form-name><title>A permit</title>"
    with Planter(tmp_path / "data") as planter:
        body = definition().replace(b"<title>Permit</title>", metadata.encode())
        planter.save("svc/builder", "9f", body, FIRST, User("bob"))
    found = administrator(tmp_path)
    found.shows("/admin/forms/svc/builder", "Title Application Form Saved", "A permit town permit 2024-05-02 10:00:00")
    page = found.get("/admin/forms/svc/builder/data/9f").text
    assert re.search(r"<h1>\s*<bdi>A permit</bdi>", page)
    assert "Application town Form permit" in found.text


def test_an_outline_finds_controls_by_path() -> None:
    outline = read_outline(definition(), V4_0_0)
    assert outline.find(("s", "kind")).choice("com", "de") == "Commercial"  # type: ignore[union-attr]
    assert outline.find(("s", "nothing")) is None
    assert NO_OUTLINE.find(("s",)) is None
    assert list(shown_changes([], ADDRESS, None)) == []
