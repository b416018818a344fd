"""``persistence search``: the hits of a search over HTTP, and the paths of values in all commands."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from tests import orders
from tests.cli.command_runner import Place
from tests.forms.test_paths import data_at, definitions
from tests.forms.vectors import changed
from tests.initialised import initialised
from tests.orders import ORDER
from tests.published import PERMISSIONS, Planter
from tests.searches import NAME, PRODUCT, STATUS, TOPICS

EMAIL = "customer/email"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    orders.plant(Planter(tmp_path))
    return tmp_path


def search(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(commands, ["search", "--data", str(root), *arguments])


def names(root: Path, *arguments: str) -> list[str]:
    """Return the documents that are found, drafts with a ring."""
    done = search(root, "acme/order", "--json", *arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    hits = [json.loads(line) for line in done.stdout.splitlines()]
    return [hit["document"] + ("°" if hit["draft"] else "") for hit in hits]


def test_instants_before_1970_come_in_their_order(tmp_path: Path) -> None:
    """The newest first, also those with a fraction of a second."""
    instants = [
        f"{second}Z" for second in ("1970-01-01T00:00:00.000", "1969-12-31T23:59:59.500", "1969-12-31T23:59:59.000")
    ]
    facts = {"app": "acme", "form": "order", "version": 1, "data": "<form/>"}
    lines = [json.dumps(facts | {"document": f"d{at}", "modified": instants[at]}) for at in (1, 0, 2)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    data = str(initialised(tmp_path / "data"))
    done = CliRunner().invoke(commands, ["import", str(tmp_path / "in.jsonl"), "--data", data])
    assert done.exit_code == 0, done.output
    assert names(tmp_path / "data") == ["d0", "d1", "d2"]


EVERY = ["d-4°", "d-3°", "d-2", "d-3", "d-1"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), EVERY),
        (("100%",), ["d-2"]),
        ((" call back ",), ["d-1"]),
        (("--path", f"{PRODUCT}=valve_"), ["d-1"]),
        (("--path", f"{STATUS}=open", "--match", "exact"), ["d-4°", "d-3°", "d-3", "d-1"]),
        (("--path", f"{TOPICS}=GREEN red", "--match", "token"), ["d-1"]),
        (("--path", f"{TOPICS}=red", "--path", f"{NAME}=o"), ["d-3"]),
        (("--path", "customer[1]/name[1]=zoe b"), ["d-3°"]),
        (("--path", NAME), EVERY),
        (("--path", f"{NAME}= "), EVERY),
        (("--path", f"{NAME}=a=b"), []),
        (("--sort", NAME, "--drafts", "exclude"), ["d-1", "d-2", "d-3"]),
        (("--sort", NAME, "--descending", "--drafts", "exclude"), ["d-3", "d-2", "d-1"]),
        (("--sort", "created", "--drafts", "exclude"), ["d-1", "d-2", "d-3"]),
        (("--page-size", "2", "--page", "3"), ["d-1"]),
        (("--page-size", "1000000", "--page", "1000000000"), []),
        (("--version", "1"), EVERY),
    ],
)
def test_it_finds_what_is_asked_for(root: Path, arguments: tuple[str, ...], found: list[str]) -> None:
    assert names(root, *arguments) == found


def test_without_a_version_it_is_the_latest_published_one(root: Path) -> None:
    Planter(root).define(str(ORDER), 2, orders.definition(), "2024-06-01T00:00:00.000Z")
    assert names(root) == []
    assert names(root, "--version", "1") == EVERY


def test_permissions_do_not_count(root: Path) -> None:
    Planter(root).define(str(ORDER), 1, orders.definition(PERMISSIONS), "2024-06-01T00:00:00.000Z")
    assert names(root) == EVERY


def test_a_path_of_the_designers_may_have_equals_signs_in_brackets(root: Path) -> None:
    metadata = "xh:head/xf:model[@id = 'fr-form-model']/xf:instance[@id = 'fr-form-metadata']/*"
    for document, definition in (("b-1", orders.definition()), ("b-2", orders.definition().replace(b"order", b"a=b"))):
        Planter(root).save("svc/builder", document, definition, f"2024-07-01T00:00:0{document[-1]}.000Z")
    assert search(root, "svc/builder", "--path", f"{metadata}/form-name=order").stderr == "1 found, 1 to 1 shown\n"
    assert search(root, "svc/builder", "--path", f"{metadata}/form-name=A=B").stderr == "1 found, 1 to 1 shown\n"
    assert search(root, "svc/builder", "--path", f"{metadata}/form-name").stderr == "2 found, 1 to 2 shown\n"


def test_what_could_command_the_terminal_is_not_printed(root: Path) -> None:
    body = "<form><customer><name>\u202eevil\n</name></customer></form>".encode()
    Planter(root).save(str(ORDER), "d-5", body, "2024-07-01T00:00:00.000Z")
    done = search(root, "acme/order", "evil", "--path", NAME)
    assert "\N{REPLACEMENT CHARACTER}evil\N{REPLACEMENT CHARACTER}" in done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_a_form_without_documents_has_none_and_gets_no_index(tmp_path: Path) -> None:
    Planter(tmp_path).define(str(ORDER), 1, orders.definition(), orders.PUBLISHED)
    assert names(tmp_path) == []
    assert not (tmp_path / ".index/acme").exists()


def test_documents_are_read_again_when_the_definition_has_changed(root: Path) -> None:
    assert names(root, "--path", f"{EMAIL}=example") == ["d-2", "d-1"]
    body = orders.definition().replace(b'class="fr-search"', b"")
    Planter(root).define(str(ORDER), 1, body, "2024-06-01T00:00:00.000Z")
    assert EMAIL in str(search(root, "acme/order", "--path", f"{EMAIL}=example").exception)
    hits = [json.loads(line) for line in search(root, "acme/order", "--json").stdout.splitlines()]
    assert [EMAIL in hit["values"] for hit in hits] == [False] * len(EVERY)


# Commands about a form whose grids are not listed, or whose binds are odd: all go by the paths of a search


FORMS = ["plain grid", "repeated grid", "section and grid of one name", "bind of several steps", "grid in a grid"]


@pytest.mark.parametrize("name", FORMS)
def test_values_are_found_shown_exported_and_compared_at_the_path_that_show_prints(tmp_path: Path, name: str) -> None:
    (_, (definition, (path, *_))) = definitions(name, "<fr:index/>")
    place = Place(tmp_path / "data")
    place.put("a/f/form/form.xhtml", definition)
    for text in ("alpha", "gamma"):
        place.put("a/f/data/d/data.xml", changed(data_at(path).decode(), "secret", text).encode())
    assert place.lines("show", "a/f/1")[-1] == f"c input {path} indexed"
    assert place.lines("search", "a/f", "--path", path)[1].endswith(" gamma")
    (row,) = csv.DictReader(io.StringIO(place.run("export", "-", "--csv", "--match", "a/f/1").stdout))
    assert row["c"] == "gamma"
    (line,) = place.run("export", "-", "--jsonl", "--match", "a/f/1").stdout.splitlines()
    assert json.loads(line)["values"] == {"c": ["gamma"]}
    assert f"{path}: 'alpha' -> 'gamma'" in place.lines("diff", "a/f/data/d")
