"""The flat views of a form: the names of views and columns, and the rows of documents in them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.forms.controls import read_controls
from persistence.forms.flat_tables import (
    METADATA_COLUMNS,
    Cell,
    FlatNaming,
    FlatView,
    RowReader,
    UniqueNames,
    from_catalogue,
    identifier,
    joined,
    read_flat_views,
)
from persistence.limits import DEEPEST, MOST_COLUMNS, MOST_VIEWS
from persistence.model import addresses
from tests.forms.vectors import COMPONENT, V4, V7, V8, Form, bind, cell, grid, published, section, use
from tests.orders import DEFINITION as FORM

ACME = addresses.Form("acme", "order")
CONTENT = ' repeat="content"'
NAMING = FlatNaming("svc_f_", 63, prefixes_in_main=False)


def repeat(name: str, inside: str = "") -> str:
    return bind(name, bind(f"{name}-iteration", inside))


def views(form: Form | str, naming: FlatNaming = NAMING, of: addresses.Form = ACME) -> tuple[FlatView, ...]:
    stored = form if isinstance(form, str) else published(form)
    return read_flat_views(stored.encode(), of, 1, naming)


def names(form: Form | str, naming: FlatNaming = NAMING) -> dict[str, list[str]]:
    """The names of the columns of controls by view, which is without what all begin with."""
    return {
        view.name.removeprefix("svc_f_acme_order_1"): [each.name for each in view.columns]
        for view in views(form, naming)
    }


def rows(form: Form | str, *documents: str | bytes) -> list[list[tuple[Cell, ...]]]:
    """The rows of each view, of all documents together."""
    found = views(form)
    reader = RowReader(found)
    read = [reader.read([each if isinstance(each, bytes) else each.encode()]) for each in documents]
    return [[row for each in read for row in each[view.name]] for view in found]


def test_names_are_no_longer_than_they_may_be() -> None:
    found = views(FORM.replace("lines", "positions-of-the-order"), FlatNaming("svc_f_", 20, prefixes_in_main=True))
    assert [view.name for view in found] == ["svc_f_acme_order_1", "svc_f_acm_ord_1_posi"]
    shorter = views(FORM, FlatNaming("svc_f_", 11, prefixes_in_main=True))
    columns = [column.name for column in shorter[0].columns]
    assert columns == ["custom_name", "custo_email", "custo_notes", "custo_topic", "custo_statu"]


def test_a_control_of_a_section_template_is_called_after_its_section_too() -> None:
    """And with prefixes by the whole path, but in views of repeats."""
    assert names(V8) == {"": ["ref_no", "who_mail"], "_tels": ["who_tel"]}
    prefixed = replace(NAMING, prefixes_in_main=True)
    assert names(V8, prefixed) == {"": ["main_ref_no", "who_mail"], "_tels": ["who_tel"]}
    data = "<form><main><ref-no>7</ref-no></main><who><mail>x@y</mail><tels><tel>1</tel></tels></who></form>"
    assert rows(V8, data) == [[("7", "x@y")], [(1, "1")]]


def test_a_template_that_is_shown_twice_has_views_for_each() -> None:
    whom = section("whom", use("contact"), CONTENT)
    twice = replace(V8, binds=V8.binds + repeat("whom"), body=V8.body + whom)
    assert names(twice) == {
        "": ["ref_no", "who_mail"],
        "_tels": ["who_tel"],
        "_whom": ["whom_mail"],
        "_tels1": ["whom_tel"],
    }
    data = """<form><main><ref-no/></main><who/><whom><whom-iteration><mail>a</mail><tels><tel>1</tel></tels>
      <tels><tel>2</tel></tels></whom-iteration><whom-iteration><tels><tel>3</tel></tels></whom-iteration></whom></form>"""
    assert rows(twice, data) == [[(None, None)], [], [(1, "a"), (2, None)], [(1, 1, "1"), (1, 2, "2"), (2, 1, "3")]]
    assert views(twice)[3].repetitions == ("whom_repetition", "tels_repetition")


def test_repetitions_are_counted_within_those_around() -> None:
    assert names(V4) == {"": [], "_kids": ["name"], "_toys": ["toy"]}
    kid = "<kids-iteration><name>{}</name>{}</kids-iteration>"
    toys = "<toys><toy>{}</toy></toys>"
    data = [
        kid.format("A", toys.format("car") + toys.format("kite")),
        kid.format("B", ""),
        kid.format("", toys.format("")),
    ]
    assert rows(V4, f"<form><kids>{''.join(data)}</kids></form>", "<form><kids/></form>") == [
        [(), ()],
        [(1, "A"), (2, "B"), (3, None)],
        [(1, 1, "car"), (1, 2, "kite"), (3, 1, None)],
    ]
    own = replace(V4, binds=V4.binds.replace('ref="kids-iteration" name="kids-iteration"', 'ref="kid" name="kid"'))
    assert rows(own, "<form><kids><kid><name>A</name></kid></kids></form>")[1] == [(1, "A")]


def test_what_has_no_bind_has_an_empty_column_and_no_view() -> None:
    inside = cell("a") + cell("b")
    form = Form("<form/>", bind("s", bind("a")), section("s", grid("r", inside, CONTENT)))
    assert names(form) == {"": ["a", "b"]}
    assert rows(form, "<form><s><a>1</a><b>2</b></s></form>") == [[("1", None)]]
    catalogued = [(*each.row, [column.row for column in each.columns]) for each in views(form)]
    assert from_catalogue(catalogued) == views(form)
    assert catalogued[0] == (views(form)[0].name, None, "", None, [("a", "s/a"), ("b", "")])


def test_a_value_from_elsewhere_is_in_the_row_around_it() -> None:
    form = Form(
        "<form/>",
        bind("s", repeat("r", bind("a"))) + bind("t", bind("b")),
        section("s", grid("r", cell("a") + cell("b"), CONTENT)),
    )
    assert names(form) == {"": ["b"], "_r": ["a"]}
    assert rows(form, "<form><s><r><a>1</a></r></s><t><b>2</b></t></form>") == [[("2",)], [(1, "1")]]


def test_an_old_repeat_is_one_too() -> None:
    data = "<form><list><head>h</head><row><cell>1</cell></row><row><cell>2</cell></row></list></form>"
    assert rows(V7, data) == [[("h",)], [(1, "1"), (2, "2")]]


NAME = "<customer><name>{}</name></customer>"
NAMES = {
    **{
        f"text {text!r}": (NAME.format(text), name)
        for text, name in {
            "": None,
            "x": "x",
            " ": " ",
            "a&amp;<![CDATA[b]]>": "a&b",
            "a<!-- -->b": "a",
            "a<?p i?>b": "a",
            "<!-- -->b": "b",
            "<_>x</_>": None,
            "<_>x</_>y": "y",
            "y<_>x</_>z": "y",
        }.items()
    },
    "the first with text": ("<customer><name/></customer><customer><name>1</name><name>2</name></customer>", "1"),
    "elsewhere": ("<name>1</name><x><customer><name>3</name></customer></x>", None),
    "in a namespace": ('<customer xmlns="urn:x"><name>2</name></customer>', None),
    "encrypted": ('<customer><name encrypted="true">c1pher</name></customer>', None),
}
"""Data of a document, and the cell of its name."""


@pytest.mark.parametrize("case", NAMES)
def test_a_value_is_the_first_text_node_of_the_elements_in_its_place(case: str) -> None:
    inside, name = NAMES[case]
    assert rows(FORM, f"<form>{inside}</form>")[0] == [(name, None, None, None, None)]


def test_every_element_with_a_name_is_a_control_but_containers_and_what_shows_templates() -> None:
    form = Form(
        "<form/>",
        bind("s"),
        section(
            "s",
            '<xf:group id="around"><xf:trigger id="go-control"><xf:label id="no-control"/></xf:trigger></xf:group>'
            f'<fr:repeat id="r-repeat"><fr:body>{cell("old")}</fr:body></fr:repeat>'
            f'<k:x id="shown-control" xmlns:k="{COMPONENT}"/><fr:explanation id="text-control"/><fr:c id="c"/>',
        ),
    )
    assert names(form) == {"": ["go", "old", "text"]}


def test_columns_and_views_of_one_name_are_counted_whatever_their_case() -> None:
    form = Form(
        "<form/>",
        repeat("r-x") + repeat("R_x", repeat("r.x")),
        section("s", "".join(map(cell, ("a-b", "a_b", "A-B", "metadata-created", "Metadata_Document_Id"))))
        + grid("r-x", cell("r-x-repetition"), CONTENT)
        + section("R_x", grid("r.x", cell("c"), CONTENT), CONTENT)
        + grid("r-x", "", CONTENT),
    )
    assert names(form) == {
        "": ["a_b", "a_b1", "A_B2", "metadata_created1", "Metadata_Document_Id1"],
        "_r_x": ["r_x_repetition1"],
        "_R_x1": [],
        "_rx": ["c"],
        "_r_x2": [],
    }
    again = section("a-b", grid("a_b", cell("c"), ' min="0"'), CONTENT)
    assert views(Form("<form/>", repeat("a-b", repeat("a_b")), again))[2].repetitions == (
        "a_b_repetition",
        "a_b_repetition1",
    )


def test_where_all_names_are_limited_those_of_repetitions_are_cut_and_counted_too() -> None:
    """As in PostgreSQL, which would cut names itself, to the same one twice."""
    one, other = "a" * 70, "a" * 71
    nested = section(one, section(other, cell("c"), CONTENT), CONTENT)
    limited = replace(NAMING, limit=63)
    form = Form("<form/>", repeat(one, repeat(other)), nested)
    found = views(form, limited)[2]
    assert found.repetitions == ("a" * 52 + "_repetition", "a" * 52 + "_repetitio1")
    assert all(len(name) <= 63 for view in views(form, limited) for name in view.column_names)
    assert views(form)[2].repetitions == (f"{one}_repetition", f"{other}_repetition")


def test_a_database_may_take_fewer_columns() -> None:
    form = Form("<form/>", "", "".join(cell(f"c{n}") for n in range(7)))
    assert len(views(form, replace(NAMING, most_columns=11))[0].column_names) == 11
    with pytest.raises(BadRequestError, match="more than 10 columns"):
        views(form, replace(NAMING, most_columns=10))


def test_a_library_and_a_document_without_a_form_model_have_no_views_and_a_malformed_definition_is_damage() -> None:
    assert views(FORM, of=addresses.Form("acme", "library")) == views("<form/>") == ()
    assert RowReader(()).read([b"<form/>"]) == {}
    with pytest.raises(DamagedError):
        views("<form>")


TOO_MUCH = {
    "columns": Form("<form/>", "", "".join(cell(f"c{n}") for n in range(MOST_COLUMNS))),
    "views": Form(
        "<form/>", "".join(bind(f"g{n}") for n in range(MOST_VIEWS)),
        "".join(grid(f"g{n}", "", " min='0'") for n in range(MOST_VIEWS)),
    ),
    "too long names": Form("<form/>", "", "".join(cell("c" * 100_000 + str(n)) for n in range(50))),
    "too many controls": replace(
        V8, body="".join(section(f"s{n}", use("contact")) for n in range(220)),
        xbl=re.sub("<xf:group>", "<xf:group>" + "<fr:grid/>" * 20_000, V8.xbl),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == "too many controls")) for name in TOO_MUCH]
)
def test_a_form_that_would_have_too_much_is_refused(name: str) -> None:
    with pytest.raises(BadRequestError, match=name):
        views(TOO_MUCH[name].document())


def test_elements_that_are_not_controls_are_read_once_for_each_template() -> None:
    body = "".join(section(f"s{n}", use("contact")) for n in range(50))
    form = replace(V8, body=body)
    padded = replace(form, xbl=re.sub("<xf:group>", "<xf:group>" + "<x/>" * 20_000, V8.xbl))
    assert views(padded.document()) == views(form.document())


def test_a_document_that_would_have_too_many_rows_is_refused() -> None:
    form = Form("<form/>", bind("g"), grid("g", "".join(cell(f"c{n}") for n in range(1900)), " min='0'"))
    with pytest.raises(BadRequestError, match="values"):
        rows(form, "<form>" + "<g/>" * 10_000 + "</form>")


@pytest.mark.parametrize(
    "document", ["", "<form>", "<!DOCTYPE form><form/>", "<a>" * DEEPEST + "<a/>" + "</a>" * DEEPEST]
)
def test_the_limits_of_all_documents_hold(document: str) -> None:
    with pytest.raises(MalformedXmlError):
        rows(FORM, document)


def test_real_definitions_have_views_of_their_controls(corpus: Path) -> None:
    """All controls with a bind are in some column, where data of format 4.0.0 has them."""
    total = 0
    for path in sorted(corpus.rglob("form.xhtml")):
        stored = path.read_bytes()
        found = views(stored.decode())
        there = set()
        for view in found:
            there |= {column.path for column in view.columns}
            total += len(view.columns)
            assert len(set(map(str.lower, view.column_names))) == len(view.column_names)
        if path.parent.parent.name != "library":
            assert {control.path("4.0.0") for control in read_controls(stored)} <= there, path
    assert total > 100


def test_real_documents_have_one_row_and_values(corpus: Path) -> None:
    values = 0
    for path in sorted(corpus.rglob("data.xml")):
        definition = path.parents[2] / "form" / "form.xhtml"
        if definition.is_file():
            main, *_ = rows(definition.read_text("utf-8"), path.read_bytes())
            assert len(main) == 1
            values += sum(value is not None for value in main[0])
    assert values > 50


# Names: identifiers, what is cut off them, and how they are made distinct


IDENTIFIERS = {
    "due-date": "due_date",
    "__a--b_": "a__b",
    "x$y.z": "xyz",
    "-": "_",
    "": "_",
    "é": "_",
    "Name-1": "Name_1",
    '"; DROP TABLE x': "DROPTABLEx",
}


def test_a_name_becomes_an_identifier() -> None:
    assert {name: identifier(name) for name in IDENTIFIERS} == IDENTIFIERS


CONTACT, ADDRESS = "contact-information/preferred-contact-method", "delivery-address/street-name-and-number"
COLUMNS = {
    30: {CONTACT: "contact_inform_preferred_conta", f"{CONTACT}-alt": "contact_inform_preferred_cont1"},
    24: {ADDRESS: "delivery_add_street_name", f"{ADDRESS}-2": "delivery_add_street_nam1"},
    63: {"created": "created", "metadata-created": "metadata_created1"}
    | {"a-b": "a_b", "a_b": "a_b1", "A-B": "A_B2", "a-b-1": "a_b_1"},
    2: {"ab": "ab", "abc": "a1", "AB": "A2", "a/b": "_b", "c/d": "_d"},
}
"""By how long a name may be: the paths of controls, and the names of their columns."""


@pytest.mark.parametrize("longest", COLUMNS)
def test_columns_are_cut_and_counted(longest: int) -> None:
    names = UniqueNames(METADATA_COLUMNS, longest)
    taken = {path: names.take(joined(list(map(identifier, path.split("/"))), longest)) for path in COLUMNS[longest]}
    assert taken == COLUMNS[longest]


def test_a_view_is_cut_after_its_prefix_and_counters_go_on_to_two_digits() -> None:
    parts = [identifier("human-resources"), identifier("expense-report"), "12"]
    assert "svc_f_" + joined(parts, 30 - 6) == "svc_f_human_reso_expense_re_12"
    names = UniqueNames((), 3)
    assert [names.take("abc") for _ in range(12)] == ["abc", *(f"ab{n}" for n in range(1, 10)), "a10", "a11"]


def step_by_step(parts: list[str], longest: int) -> str:
    """The rule as it is written."""
    parts = list(parts)
    while sum(map(len, parts)) > longest - (len(parts) - 1):
        at = max(range(len(parts)), key=lambda number: (len(parts[number]), -number))
        parts[at] = parts[at][:-1].rstrip("_")
    return "_".join(parts)


@given(st.lists(st.text("ab_", max_size=12), min_size=1, max_size=5), st.integers(4, 40))
def test_cutting_at_once_is_cutting_step_by_step(parts: list[str], longest: int) -> None:
    assert joined(parts, longest) == step_by_step(parts, longest)


@given(st.lists(st.text("ab_", max_size=12), min_size=1, max_size=9), st.integers(-3, 12))
def test_what_has_no_room_at_all_is_still_no_longer(parts: list[str], longest: int) -> None:
    assert len(joined(parts, longest)) <= max(longest, 1)
    assert joined(["a" * 1_000_000, "b" * 1_000_000], 63) == "a" * 31 + "_" + "b" * 31  # cut at once
