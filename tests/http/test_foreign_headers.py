"""Headers of the other dialect: a user who is named in them must not become an anonymous one unseen."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Service, pair

OTHER = {"svc": "Orbeon-", "orbeon": "Svc-"}
OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.yaml"
PATHS = [
    ("PUT", f"{PUBLIC}/crud/a/b/data/D/data.xml"),
    ("GET", f"{PUBLIC}/crud/a/b/form/form.xhtml"),
    ("DELETE", f"{PUBLIC}/crud/a/b/data/"),
    ("PUT", "/crud/a/b/data/D/data.xml"),
    ("POST", f"{PUBLIC}/search/a/b"),
    ("POST", "/distinct-values/a/b"),
    ("GET", f"{PUBLIC}/form"),
    ("POST", f"{PUBLIC}/reindex"),
    ("POST", f"{PUBLIC}/reencrypt/a/b"),
    ("POST", "/fr/service/publish"),
    ("GET", "/fr/service/a/b/attachments?document=D"),
]


@pytest.fixture(scope="module", params=["svc", "orbeon"])
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp(f"strict-{request.param}"), dialect=request.param, alone=True) as service:
        yield service


@pytest.fixture(scope="module", params=["svc", "orbeon"])
def lenient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    env = {"PERSISTENCE_FOREIGN_HEADERS": "ignore"}
    with serving(
        tmp_path_factory.mktemp(f"lenient-{request.param}"), dialect=request.param, env=env, alone=True
    ) as service:
        yield service


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_they_are_refused_wherever_they_are_sent(strict: Service, method: str, path: str) -> None:
    answer = strict.raw(method, path, {OTHER[strict.dialect] + "Username": "lea"}, b"<d/>" if method != "GET" else None)
    own, sent = f"{strict.prefix}Username", f"{OTHER[strict.dialect]}Username"
    assert answer.status == 400
    assert answer.cause == f"this service speaks dialect '{strict.dialect}': it reads {own}, not {sent}"
    assert not (strict.data / "a").exists()


def test_every_header_of_the_interface_is_told(strict: Service) -> None:
    """Those that docs/openapi.yaml describes, and those that a proxy adds; others with the prefix are nobody's."""
    described = yaml.safe_load(OPENAPI.read_text())["components"]["parameters"].values()
    names = {each["name"].removeprefix("Svc-") for each in described if each["name"].startswith("Svc-")}
    assert names >= {"Username", "Credentials", "Form-Definition-Version", "Workflow-Stage", "Decrypt"}
    names |= {"Singleton", "Created-Existing", "Username-Existing", "Group-Existing"}
    for name in names:
        assert strict.get("a/b/data/D/data.xml", {OTHER[strict.dialect] + name: "1"}).status == 400, name
    for name in (OTHER[strict.dialect] + "Nothing", "Username", "X-Orbeon-Username"):
        assert strict.get("a/b/data/D/data.xml", {name: "1"}).status == 404


def test_a_supervisor_is_answered_whatever_a_proxy_adds(strict: Service) -> None:
    for path in ("/healthz", "/readyz"):
        assert strict.raw("GET", path, {OTHER[strict.dialect] + "Username": "lea"}).status == 200


def test_they_are_ignored_where_a_setting_says_so(lenient: Service) -> None:
    both = {OTHER[lenient.dialect] + "Username": "kim", lenient.prefix + "Username": "lea"}
    for face in (PUBLIC, PROVIDER):
        lenient.face = face
        path = f"a/b/data/{'public' if face else 'provider'}/data.xml"
        assert lenient.put(path, headers=both, **V1).status == 201
        assert lenient.get(path)[lenient.prefix + "Username"] == "lea"


def test_the_service_behind_is_told_nothing_of_them(tmp_path: Path) -> None:
    """The one in front ignores them, the one behind would refuse what it knows, and believe its own."""
    env = {"PERSISTENCE_FOREIGN_HEADERS": "ignore"}
    with pair(tmp_path, env=env) as (front, behind):
        path = "a/b/data/D/data.xml"
        assert front.put(path, headers={"Orbeon-Username": "kim"}, **V1).status == 201
        got = front.get(path)
        assert (got.status, got["Svc-Username"]) == (200, None)
        behind.face = PROVIDER
        assert behind.get(path)["Orbeon-Username"] is None
