"""Form data as JSON: what is shown, what is written, and what is refused."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from persistence.errors import BadRequestError
from persistence.forms import json_data
from persistence.forms.controls import NO_OUTLINE, Outline, OutlineNode, read_outline
from persistence.forms.json_data import as_json, structure_as_json, written_over
from persistence.limits import MOST_TREE_NODES
from tests import orders

ORDER = read_outline(orders.definition(), "4.0.0")
LINES = "<items><lines><product>ink</product></lines><lines><product>pen</product></lines></items>"
DATA = f'<form><customer id="1"><name>Lea</name><!-- c --><email/></customer>{LINES}</form>'
FILE = '<image filename="a.png" mediatype="image/png" size="9">/fr/service/a.bin </image>'
FILE_VALUE = {"filename": "a.png", "mediatype": "image/png", "size": "9", "path": "/fr/service/a.bin"}


def values(data: str, outline: Outline = ORDER) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(as_json(data.encode(), outline))
    return found


def written(data: str | None, sent: dict[str, Any] | bytes, outline: Outline = ORDER) -> str:
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    found = written_over(None if data is None else data.encode(), outline, body)
    return found.decode().partition("?>\n")[2]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            DATA,
            {"customer": {"name": "Lea", "email": ""}, "items": {"lines": [{"product": "ink"}, {"product": "pen"}]}},
        ),
        ("<form><items/></form>", {"items": {}}),
        (
            f"<form><items><lines><x>{FILE}</x></lines></items></form>",
            {"items": {"lines": [{"x": {"image": FILE_VALUE}}]}},
        ),
        (f"<form>{FILE}</form>", {"image": FILE_VALUE}),
        (
            f"<form><more>{FILE.replace('image ', '_ ').replace('/image', '/_')}<_/></more></form>",
            {"more": [FILE_VALUE, ""]},
        ),
        ("<form><a>1</a><b/><a>2</a></form>", {"a": ["1", "2"], "b": ""}),
        ("<form><a>x<!-- c -->y</a><f:m xmlns:f='f'>z</f:m></form>", {"a": "xy"}),
        ("<form><a><![CDATA[<b>\u00e9</b>]]></a></form>", {"a": "<b>\u00e9</b>"}),
    ],
)
def test_values_are_nested_as_the_form_is(data: str, expected: dict[str, Any]) -> None:
    assert values(data) == expected
    assert written(data, values(data)) == data.replace("'", '"')


@pytest.mark.parametrize(
    ("sent", "before", "after"),
    [
        ({"customer": {"name": "Bob"}}, "<name>Lea</name>", "<name>Bob</name>"),
        ({"customer": {"email": "b@example.org"}}, "<email/>", "<email>b@example.org</email>"),
        ({"customer": {"name": None}}, "<name>Lea</name>", "<name/>"),
        ({"customer": {"name": 1.50}}, "<name>Lea</name>", "<name>1.5</name>"),
        (b'{"customer": {"name": 1.50}}', "<name>Lea</name>", "<name>1.50</name>"),
        ({"customer": {"name": True}}, "<name>Lea</name>", "<name>true</name>"),
        ({"customer": {"status": "open"}}, "<email/>", "<email/><status>open</status>"),
        ({"customer": {"notes": "n", "topics": "t"}}, "<email/>", "<email/><notes>n</notes><topics>t</topics>"),
        ({"items": {"lines": [{"product": "ink"}]}}, "<lines><product>pen</product></lines>", ""),
        ({"items": {"lines": []}}, LINES, "<items/>"),
        (
            {"items": {"lines": [{}, {}, {"product": "cap"}]}},
            "</items>",
            "<lines><product>cap</product></lines></items>",
        ),
        ({"items": {"lines": [{"product": "a"}, {}]}}, "ink", "a"),
        ({}, "", ""),
    ],
)
def test_only_what_is_sent_changes(sent: dict[str, Any] | bytes, before: str, after: str) -> None:
    assert written(DATA, sent) == DATA.replace(before, after) if before else DATA


def test_new_data_has_every_element_of_the_form_and_the_rows_that_are_sent() -> None:
    found = written(None, {"items": {"lines": [{"product": "ink"}, {}]}})
    empty = "<name/><email/><notes/><topics/><status/>"
    rows = "<lines><product>ink</product></lines><lines><product/></lines>"
    assert found == f"<form><customer>{empty}</customer><items>{rows}</items></form>"


@pytest.mark.parametrize(
    ("sent", "before", "after"),
    [
        ({"image": {"filename": "b.png"}}, "a.png", "b.png"),
        ({"image": {"path": "/b.bin"}}, "/fr/service/a.bin ", "/b.bin"),
        ({"image": ""}, FILE, '<image filename="" mediatype="" size=""/>'),
        ({"image": FILE_VALUE}, "", ""),
        ({"more": [{"filename": "c", "path": "/c"}, "/d"]}, "<more/>", '<more><_ filename="c">/c</_><_>/d</_></more>'),
    ],
)
def test_files_are_objects(sent: dict[str, Any], before: str, after: str) -> None:
    data = f"<form>{FILE}<more/></form>"
    assert written(data, sent, NO_OUTLINE) == (data.replace(before, after) if before else data)


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        ({"custommer": {}}, "the form has no 'custommer'; the nearest is 'customer'"),
        ({"customer": {"nmae": "x"}}, "the form has no 'customer/nmae'; the nearest is 'name'"),
        ({"items": {"lines": [{"prodct": "x"}]}}, "no 'items/lines[1]/prodct'; the nearest is 'product'"),
        ({"{x}y": 1}, "the form has no '{x}y'"),
        ({"*": 1}, "the form has no '*'"),
        ({"customer": "x"}, "customer must be an object"),
        ({"customer": ["x"]}, "customer is not a list"),
        ({"customer": {"name": {"first": "x"}}}, "the form has no 'customer/name/first'"),
        ({"items": {"lines": {"product": "x"}}}, "items/lines must be a list of objects"),
        ({"items": {"lines": ["x"]}}, "items/lines must be a list of objects"),
        ({"customer": {"name": ["x", []]}}, "customer/name must be a list of files, objects with filename"),
        ({"customer": {"name": "\x00"}}, "customer/name has a character that XML does not allow"),
        ({"customer": {"name": {"filename": {}}}}, "customer/name must be a text, a number, true, false or null"),
        (b'{"a": 1, "a": 2}', "an object has the name 'a' twice"),
        (b'{"customer": {"name": NaN}}', "the body is not JSON"),
        (b"[" + b"{}," * (MOST_TREE_NODES + 1), "more than 1000000 commas and brackets"),
        (b"[]", "the body must be a JSON object"),
        (b"<form/>", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b'{"a":' * 100_000, "the body is not JSON"),
        ({"items": {"lines": [{}] * 600}}, "more than 1000 elements"),
    ],
)
def test_what_the_form_does_not_have_is_refused_with_the_cause(
    sent: dict[str, Any] | bytes, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_data, "MOST_TREE_NODES", 1000)
    with pytest.raises(BadRequestError) as error:
        written(DATA, sent)
    assert cause in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_missing_elements_of_a_wide_form_are_added_in_its_order_and_in_linear_time() -> None:
    """Some 20 ms; by the square of the controls, it was 16 s."""
    names = [f"c{number}" for number in range(20_000)]
    outline = Outline(OutlineNode(inside={name: OutlineNode(name, is_control=True) for name in names}), ())
    before = "<form><c3>old</c3><c19998/></form>"
    began = time.process_time()
    found = etree.fromstring(written(before, dict.fromkeys(names, "v"), outline))
    assert [each.tag for each in found] == names
    data = f"<form>{'<s/>' * 100_000}</form>"
    rows = Outline(OutlineNode(inside={"s": outline.root}), ())
    assert values(data, rows) == {"s": [{}] * 100_000}
    assert time.process_time() - began < 10


def test_the_structure_of_a_definition_has_kinds_and_labels() -> None:
    resource = '<resource xml:lang="{0}"><name><label>Name ({0})</label></name></resource>'
    resources = "".join(resource.format(language) for language in ("en", "fr"))
    metadata = '<xf:instance id="fr-form-metadata">'
    instance = f'<xf:instance id="fr-form-resources"><resources>{resources}</resources></xf:instance>{metadata}'
    labelled = orders.DEFINITION.replace(metadata, instance)
    found = json.loads(structure_as_json(read_outline(labelled.encode(), "4.0.0")))
    assert {name: each["kind"] for name, each in found.items()} == {"customer": "section", "items": "section"}
    assert found["items"]["contains"]["lines"]["kind"] == "repeat"
    assert found["items"]["contains"]["lines"]["contains"] == {"product": {"kind": "control"}}
    name = found["customer"]["contains"]["name"]
    assert name == {"kind": "control", "label": {"en": "Name (en)", "fr": "Name (fr)"}}


def test_the_whole_corpus_makes_the_round_trip(corpus: Path) -> None:
    def canonical(data: bytes) -> bytes:
        return etree.tostring(etree.fromstring(data), method="c14n2")

    count = 0
    for file in corpus.glob("*/*/data/*/data.xml"):
        definition = file.parents[2] / "form/form.xhtml"
        if definition.exists():
            stored, outline = file.read_bytes(), read_outline(definition.read_bytes(), "4.0.0")
            sent = as_json(stored, outline)
            assert canonical(written_over(stored, outline, sent)) == canonical(stored)
            assert json.loads(as_json(written_over(None, outline, sent), outline)) == json.loads(sent)
            count += 1
    assert count > 20
