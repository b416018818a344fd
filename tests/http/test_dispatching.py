"""The short way to the route of a document finds what werkzeug finds, and says what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from persistence.app import Service, create_app
from persistence.http.routing import RouteFinder
from persistence.settings import Settings
from persistence.storage.root import init

_NAMES = st.sampled_from(
    ["crud", "data", "draft", "form", "data.xml", "a", "é", "b c", "\n", "fr", "service", "", "%2F"]
)
_METHODS = st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "LOCK", "UNLOCK", "POST", "OPTIONS"])
_PREFIXES = st.sampled_from(["", "/fr/service/persistence", "/fr", "/crud", "/\n"])


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Service:
    data = tmp_path_factory.mktemp("routes") / "data"
    init(str(data))
    with create_app(Settings(data=str(data))) as made:
        return made


def found(adapter: MapAdapter) -> object:
    try:
        rule, names = adapter.match(return_rule=True)
    except HTTPException as error:
        return type(error), error.get_response().headers.get("Location"), getattr(error, "valid_methods", None)
    return rule, names


@given(prefix=_PREFIXES, names=st.lists(_NAMES, max_size=7), method=_METHODS, collection=st.sampled_from(["data", "x"]))
def test_routes_are_those_of_werkzeug(
    app: Service, prefix: str, names: list[str], method: str, collection: str
) -> None:
    likely = f"{prefix}/crud/a/b/{collection}/" + "/".join(names)
    for path in (likely, f"{prefix}/" + "/".join(names)):
        told = ("localhost", "", "", "http", path, method)
        assert found(RouteFinder(app.url_map, *told)) == found(MapAdapter(app.url_map, *told))


def test_documents_are_found_by_the_short_way(app: Service) -> None:
    prefixes = {prefix for prefix, _, _ in app.url_map.of_documents}
    assert prefixes == {"", "/fr/service/persistence"}
    assert {method for _, _, method in app.url_map.of_documents} == {"GET", "HEAD", "PUT", "DELETE", "LOCK", "UNLOCK"}
