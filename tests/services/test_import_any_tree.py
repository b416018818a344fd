"""Whatever is stored: its export, imported into an empty tree, gives the same files, byte for byte."""

import io
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistence.services.import_sources import open_source
from persistence.storage.store import Store
from tests.examples import examples
from tests.forms.vectors import Form
from tests.initialised import initialised
from tests.service import V1, Service
from tests.services.test_import_over_http import a_service, exported
from tests.services.transferring import LARGEST, importer, run, tree

DEFINITION = Form("<form/>", "", "").document().encode()
_apps = count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with a_service(tmp_path_factory.mktemp("any") / "from") as service:
        yield service


_DOCUMENTS = st.sampled_from(["1", "D", "d", "%C3%A4%20%25", "a.metadata.xml"])
_FILES = st.sampled_from(["data.xml", "data.xml", "scan.bin", "x.json", "a.metadata.xml", "%25"])
_BODIES = st.sampled_from([b"<d/>", b"<d>\xc3\xa4</d>", b"<d a='encrypted'/>"])
_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Username": st.sampled_from(["anna", "berta"]),
        "Group": st.just("sales"),
        "Workflow_Stage": st.sampled_from(["begun", "done"]),
        "Hash_Algorithm": st.just("A"),
        "Hash_Value": st.just("h"),
    },
)
DATA = st.tuples(
    st.sampled_from(["PUT", "PUT", "PUT", "DELETE"]),
    st.builds("{}/{}/{}".format, st.sampled_from(["data", "data", "draft"]), _DOCUMENTS, _FILES),
    _BODIES,
    _HEADERS,
)
FORMS = st.tuples(
    st.sampled_from(["PUT", "PUT", "DELETE"]),
    st.builds("form/{}".format, st.sampled_from(["form.xhtml", "logo.png"])),
    st.sampled_from([DEFINITION, DEFINITION + b"<!-- again -->"]),
    st.fixed_dictionaries({"Form_Definition_Version": st.integers(1, 3)}),
)

Requests = list[tuple[str, str, bytes, dict[str, object]]]
"""Method, path below a form, body and headers of each."""


def send(service: Service, app: str, requests: Requests) -> None:
    """Send requests to the form ``f`` of an application; the service may refuse each, but must not fail."""
    for method, path, body, own in requests:
        headers = {"Content-Type": "text/plain"} if method == "PUT" else {}
        answer = service.ask(method, f"{app}/f/{path}", body, headers, **own)
        assert answer.status < 500, answer.cause


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(DATA | FORMS, min_size=1, max_size=12))
def test_an_export_gives_the_same_tree_again(service: Service, requests: Requests) -> None:
    app = f"app{next(_apps)}"
    send(service, app, requests)
    assert_same(service, app)


def assert_same(service: Service, app: str) -> None:
    """What is exported of an application gives the same files in an empty tree."""
    archive = exported(service, f"&match={app}//")
    with tempfile.TemporaryDirectory() as directory:
        with Store(initialised(f"{directory}/data"), lock_timeout=5) as store:
            outcomes = run(importer(store), open_source("x", io.BytesIO(archive), largest=LARGEST))
        assert [each for each in outcomes if each.cause or each.notes] == []
        expected = {path: held for path, held in tree(service.data).items() if path.startswith(f"{app}/")}
        assert tree(Path(directory) / "data") == expected


@pytest.mark.parametrize("app", ["crud", "fr", "__MACOSX", "Thumbs.db", "export-errors.txt", "form", "latest"])
def test_names_that_mean_something_else_are_kept(service: Service, app: str) -> None:
    """Prefixes of the interface, parts of an archive's paths, and files that tools add."""
    names = (
        "data.xml",
        "Thumbs.db",
        "export-errors.txt",
        "latest",
        "data.xml.metadata.xml",
        "x.attachment",
        ".x",
        "x.y.json",
        "x" * 255,
    )
    for number in range(2):
        for name in names:
            for document in ("D", "latest", "Thumbs.db", "2025-01-01T00:00:00.000Z"):
                assert service.put(f"{app}/f/data/{document}/{name}", b"<d>%d</d>" % number, **V1).status < 300
    assert service.put(f"{app}/f/form/form.xhtml", DEFINITION, **V1).status < 300
    assert service.put(f"{app}/f/form/Thumbs.db", b"1", **V1).status < 300
    assert service.delete(f"{app}/f/data/D/Thumbs.db", **V1).status < 300
    assert_same(service, app)
