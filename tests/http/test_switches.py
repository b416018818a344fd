"""What the properties switch, over HTTP: seed "What the service does" 4, spec crud 4.12, 5.5, 6.3, 10.2."""

from collections.abc import Iterator

import pytest

from tests.in_process import serving
from tests.service import V1, Service

pytestmark = pytest.mark.xdist_group("switches")  # each dialect is served once

PREFIXES = {"svc": "svc.", "orbeon": "oxf.fr."}
PROPERTIES = """
"{0}persistence.provider.quiet.*.data" = "quiet"
"{0}persistence.quiet.autosave" = false
"{0}persistence.provider.open.*.*" = "open"
"{0}persistence.open.permissions" = false
"{0}persistence.provider.flat.*.form" = "flat"
"{0}persistence.flat.versioning" = false
"{0}persistence.provider.new.*.data" = "new"
"{0}persistence.new.data-format-version" = "2019.1.0"
"{0}permissions.*.guarded" = '{{"owner": ["read"], "anyone": ["create"]}}'
"{0}detail.singleton.enabled.*.single" = true
"""
DEFINITION = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"><xh:head>
<xf:model id="fr-form-model"><xf:instance id="fr-form-metadata"><metadata>{}</metadata></xf:instance></xf:model>
</xh:head></xh:html>"""


@pytest.fixture(scope="module", params=["svc", "orbeon"])
def switched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp(request.param)
    settings = directory / "persistence.toml"
    settings.write_text(PROPERTIES.format(PREFIXES[request.param]))
    with serving(directory, dialect=request.param, env={"PERSISTENCE_CONFIG": str(settings)}) as service:
        yield service


def define(service: Service, form: str, metadata: str = "", **own: object) -> None:
    assert service.put(f"{form}/form/form.xhtml", DEFINITION.format(metadata).encode(), **own).status in (201, 204)


def test_no_autosave_means_no_drafts(switched: Service) -> None:
    """Seed: the reason is said, and names the property; data is stored all the same."""
    path = "quiet/f/draft/A/data.xml"
    for answer in (switched.put(path, **V1), switched.get(path), switched.delete(path)):
        assert (answer.status, f"{PREFIXES[switched.dialect]}persistence.quiet.autosave" in answer.cause) == (403, True)
    assert switched.head(path).status == switched.put("quiet/f/draft/A/a.bin", b"1", **V1).status == 403
    assert switched.put("quiet/f/data/A/data.xml", **V1).status == 201
    assert switched.put("loud/f/draft/A/data.xml", **V1).status == 201


def test_no_permissions_means_that_nobody_is_refused(switched: Service) -> None:
    """16, D19: everything is allowed, and says so."""
    define(switched, "open/f", "<permissions/>")
    define(switched, "shut/f", "<permissions/>")
    answer = switched.put("open/f/data/A/data.xml", **V1)
    assert (answer.status, answer[switched.prefix + "Operations"]) == (201, "*")
    assert switched.put("shut/f/data/A/data.xml", **V1).status == 403


def test_no_versioning_means_version_1(switched: Service) -> None:
    """5.5: next and other numbers are refused, for definitions and for data."""
    for version, status in ((None, 201), (1, 204), ("next", 400), (2, 400)):
        own = {} if version is None else {"Form_Definition_Version": version}
        answer = switched.put("flat/f/form/form.xhtml", DEFINITION.encode(), **own)
        assert answer.status == status, version
        if status < 400:
            assert answer[switched.prefix + "Form-Definition-Version"] == "1"
    assert switched.get("flat/f/form/form.xhtml", Form_Definition_Version=2).status == 400
    assert switched.delete("flat/f/form/form.xhtml", Form_Definition_Version=2).status == 400
    assert switched.put("flat/f/data/A/data.xml").status == 201
    assert switched.put("flat/f/data/B/data.xml", Form_Definition_Version=2).status == 400
    assert switched.get("flat/f/form/form.xhtml", For_Document_Id="A").status == 200
    answer = switched.raw(
        "POST",
        "/fr/service/publish?form-definition-version=next",
        {},
        DEFINITION.format("<application-name>flat</application-name><form-name>f</form-name>").encode(),
    )
    assert (answer.status, "only version 1" in answer.cause) == (400, True)


def test_the_format_of_data_at_rest(switched: Service) -> None:
    """3.1: compared with the parameter, for each provider."""
    for app, asked, status in (
        ("new", "2019.1.0", 201),
        ("new", "4.0.0", 400),
        ("old", "4.0.0", 201),
        ("old", "2019.1.0", 400),
    ):
        answer = switched.put(f"{app}/f/data/{asked}/data.xml?data-format-version={asked}", **V1)
        assert answer.status == status, (app, asked)


def test_permissions_for_definitions_without_their_own(switched: Service) -> None:
    """6.3: the element wins, also an empty one; a form that was never published has those of the property as well."""
    path = "x/guarded/data/A/data.xml"
    assert switched.put(path, **V1, Username="lea")[switched.prefix + "Operations"] == "create read"
    assert [switched.get(path, Username=name).status for name in ("lea", "bob")] == [200, 403]
    define(switched, "x/guarded")
    assert [switched.get(path, Username=name).status for name in ("lea", "bob")] == [200, 403]
    define(switched, "x/guarded", '<permissions><permission operations="read"/></permissions>')
    assert [switched.get(path, Username=name).status for name in ("lea", "bob")] == [200, 200]
    define(switched, "x/guarded", "<permissions/>")
    assert [switched.get(path, Username=name).status for name in ("lea", "bob")] == [403, 403]


def test_singletons_by_property(switched: Service) -> None:
    """4.12: where the definition does not say."""
    for metadata, second in (("", 409), ("<singleton>false</singleton>", 201), ("<singleton>true</singleton>", 409)):
        app = f"s{len(metadata)}"
        define(switched, f"{app}/single", metadata)
        assert switched.put(f"{app}/single/data/A/data.xml", **V1).status == 201
        assert switched.put(f"{app}/single/data/B/data.xml", **V1).status == second, metadata
    assert switched.put("never/single/data/A/data.xml", **V1).status == 201
    assert switched.put("never/single/data/B/data.xml", **V1).status == 409


def test_everyone_has_one_where_everyone_sees_their_own_only(switched: Service) -> None:
    """4.12: what counts are the documents that the user would find."""
    own = '<permission operations="create -list"/><permission operations="read update"><owner/></permission>'
    define(switched, "o/single", f"<permissions>{own}</permissions>")
    asked = [("A", "lea", 201), ("B", "lea", 409), ("C", "bob", 201), ("D", "bob", 409), ("E", "lea", 409)]
    for document, name, status in asked:
        assert switched.put(f"o/single/data/{document}/data.xml", **V1, Username=name).status == status, document
