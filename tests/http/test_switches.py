"""What properties switch, over HTTP: seed "What the service does" 4, spec crud 4.12, 5.5, 6.3, 10.2."""

from dataclasses import replace
from pathlib import Path

import pytest

from persistence.dialect import DIALECTS
from tests.http.stories import play, stories
from tests.in_process import serving
from tests.published import definition
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Service, running

pytestmark = pytest.mark.xdist_group("switches")  # each dialect is served once

PROPERTIES = """
"{prefix}persistence.provider.quiet.*.data" = "quiet"
"{prefix}persistence.quiet.autosave" = false
"{prefix}persistence.provider.open.*.*" = "open"
"{prefix}persistence.open.permissions" = false
"{prefix}persistence.provider.flat.*.form" = "flat"
"{prefix}persistence.flat.versioning" = false
"{prefix}persistence.provider.new.*.data" = "new"
"{prefix}persistence.new.data-format-version" = "2019.1.0"
"{prefix}permissions.*.guarded" = '{"owner": ["read"], "anyone": ["create"]}'
"{prefix}detail.singleton.enabled.*.single" = true
"""
OWN = '<permissions><permission operations="create -list"/><permission operations="read update"><owner/></permission>\
</permissions>'


switched = served("svc", "orbeon", settings=PROPERTIES)


def prefix(service: Service) -> str:
    return f"{DIALECTS[service.dialect].property_prefix}persistence."


@stories(
    {
        "no permissions means that nobody is refused, and says so (16, D19)": """
            PUT /open/f/form /shut/f/form {closed} -> 201
            PUT /open/f/data/A /shut/f/data/A v=1 -> 201 403
            PUT /open/f/data/A -> 204 Operations=*""",
        "the format of data at rest is compared with the parameter, for each provider (3.1)": """
            PUT /new/f/data/A?data-format-version=2019.1.0 /old/f/data/A?data-format-version=4.0.0 v=1 -> 201
            PUT /new/f/data/B?data-format-version=4.0.0 /old/f/data/B?data-format-version=2019.1.0 v=1 -> 400""",
        "a form without permissions of its own has those of the property, also unpublished; else its element wins": """
            PUT /x/guarded/data/A v=1 by=lea -> 201 Operations=`create read`
            GET /x/guarded/data/A by=lea -> 200
            GET /x/guarded/data/A by=bob -> 403
            PUT /x/guarded/form {nothing}
            GET /x/guarded/data/A by=lea -> 200
            GET /x/guarded/data/A by=bob -> 403
            PUT /x/guarded/form {readable}
            GET /x/guarded/data/A by=lea -> 200
            GET /x/guarded/data/A by=bob -> 200
            PUT /x/guarded/form {closed}
            GET /x/guarded/data/A by=lea -> 403
            GET /x/guarded/data/A by=bob -> 403""",
        "singletons by property, where the definition does not say (4.12)": """
            PUT /s1/single/form {nothing}
            PUT /s1/single/data/A /s1/single/data/B v=1 -> 201 409
            PUT /s2/single/form {many}
            PUT /s2/single/data/A /s2/single/data/B v=1 -> 201 201
            PUT /s3/single/form {one}
            PUT /s3/single/data/A /s3/single/data/B v=1 -> 201 409
            PUT /never/single/data/A /never/single/data/B v=1 -> 201 409""",
        "everyone has one singleton where everyone sees their own only (4.12)": """
            PUT /o/single/form {own}
            PUT /o/single/data/A /o/single/data/B v=1 by=lea -> 201 409
            PUT /o/single/data/C /o/single/data/D v=1 by=bob -> 201 409
            PUT /o/single/data/E v=1 by=lea -> 409""",
    }
)
def test_switches(switched: Service, form: str, story: str) -> None:
    definitions = {
        "nothing": "",
        "closed": "<permissions/>",
        "readable": '<permissions><permission operations="read"/></permissions>',
        "many": "<singleton>false</singleton>",
        "one": "<singleton>true</singleton>",
        "own": OWN,
    }
    play(switched, form, story, **{name: definition(each).decode() for name, each in definitions.items()})


def test_no_autosave_means_no_drafts(switched: Service, form: str) -> None:
    """Seed: the reason is said, and names the property; data is stored all the same."""
    told = f"""
        PUT|GET|DELETE /quiet/f/draft/A v=1 -> 403 `{prefix(switched)}quiet.autosave`
        HEAD /quiet/f/draft/A -> 403
        PUT /quiet/f/draft/A/a.bin v=1 -> 403
        PUT /quiet/f/data/A /loud/f/draft/A v=1 -> 201"""
    play(switched, form, told)


def test_no_versioning_means_version_1(switched: Service, form: str) -> None:
    """5.5: next and other numbers are refused, for definitions and for data."""
    told = """
        PUT /flat/f/form -> 201 v=1
        PUT /flat/f/form v=1 -> 204 v=1
        PUT /flat/f/form v=next -> 400
        GET|PUT|DELETE /flat/f/form v=2 -> 400
        PUT /flat/f/data/A -> 201
        PUT /flat/f/data/B v=2 -> 400
        GET /flat/f/form For-Document-Id=A -> 200"""
    play(switched, form, told)
    body = definition("<application-name>flat</application-name><form-name>f</form-name>")
    answer = switched.raw("POST", "/fr/service/publish?form-definition-version=next", {}, body)
    assert answer.refuses(400, "only version 1")


# Data of what was never published is refused: a misspelt form is not a new one, open to everybody.


started = served("svc", "orbeon", settings='"{prefix}persistence.files.published-only" = true')


@pytest.fixture(params=[PUBLIC, PROVIDER], ids=["public", "provider"])
def strict(request: pytest.FixtureRequest, started: Service) -> Service:
    """Each face, also that of a proxy (orbeon)."""
    return replace(started, face=request.param)


NAMES = "data/D draft/D data/D/a.bin draft/D/a.bin"
CAUSE = "`version 1 of {form} was never published, and data is stored of published versions only: the property {said}`"


@stories(
    {
        "data of a form that was never published is refused": f"""
            PUT {NAMES} v=1 -> 404 {CAUSE}
            GET {NAMES} -> 404
            NOTHING .
            PUT form/a.bin v=1
            PUT data/D v=1 -> 404""",
        "data of a published version is stored and of another one refused; attachments come before their document": f"""
            PUT form v=3 -> 201
            PUT {NAMES} v=99 -> 404
            PUT draft/D/a.bin draft/D data/D/a.bin data/D v=3 -> 201""",
        "the designer's own form needs no publication": """
            PUT /{builder}/data/{own}/a.bin /{builder}/data/{own} v=1 -> 201
            PUT /{builder}/draft/{own}/a.bin /{builder}/draft/{own} v=1 -> 201""",
    }
)
def test_only_what_was_published_has_data(strict: Service, form: str, story: str) -> None:
    words = {"own": f"{form[4:12]}-{strict.face.count('/')}", "said": f"{prefix(strict)}files.published-only is true"}
    play(strict, form, story, **words)
    assert strict.put(f"{form}-other/data/D/data.xml", b"<d>" + b"x" * 300_000 + b"</d>", **V1).status == 404
    assert strict.leftovers() == []


def test_what_was_begun_with_a_version_that_is_deleted_can_be_saved(strict: Service, form: str) -> None:
    """It was published: its tombstone keeps who may see the data."""
    play(strict, form, "PUT form v=1\nPUT data/D v=1 -> 201\nDELETE form v=1 -> 204\nPUT data/D data/E v=1")


def test_without_a_header_it_is_version_1_that_must_be_published(started: Service, form: str) -> None:
    status = 400 if started.dialect == "orbeon" else 404
    play(started, form, f"PUT data/D -> {status}\nPUT form v=1\nPUT data/D -> {201 if status == 404 else 400}")


def test_data_that_is_there_already_can_be_read_and_deleted(tmp_path: Path) -> None:
    """A tree from before the property was set, which asks for no publication."""
    with serving(tmp_path, alone=True) as service:
        play(service, "a/b", "PUT data/D data/E data/G v=1 -> 201\nPUT data/F v=99 -> 201")
    with serving(tmp_path, settings='"svc.persistence.files.published-only" = true', alone=True) as service:
        told = """
            GET data/D -> 200
            PUT data/D v=1 -> 404
            DELETE data/D v=1 -> 204
            FACE provider
            GET data/E -> 200
            PUT data/E v=1 -> 404
            DELETE data/E v=1 -> 204
            FACE public
            DELETE data/ v=1 -> 200"""
        play(service, "a/b", told)


# What the settings file says of properties.


@pytest.mark.parametrize("command", ["serve", "gunicorn"])
def test_the_file_decides_over_the_format_of_data(tmp_path: Path, command: str) -> None:
    settings = (
        '"svc.persistence.*.data-format-version" = "4.8.0"\n"svc.persistence.*.reindex" = true\n'
        '"svc.persistence.hr.autosave" = false\n'
    )
    with running(tmp_path, command=command, settings=settings) as service:
        path = "hr/leave/data/D/data.xml"
        assert service.put(f"{path}?data-format-version=4.8.0").status == 201
        assert service.get(f"{path}?data-format-version=4.8.0").status == 200
        refused = service.get(f"{path}?data-format-version=4.0.0")
        assert (refused.status, refused.cause) == (400, "form data is stored in format 4.8.0, not 4.0.0")
        assert service.put(f"{path}?data-format-version=4.0.0").status == 400
        said = service.log.read_text()
    assert said.count('"the property svc.persistence.*.reindex has no effect in this version"') == 1
    assert "the property svc.persistence.hr.autosave has no effect: no form has that provider" in said


def test_a_form_without_a_provider_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with serving(tmp_path, settings='"svc.persistence.provider.shop.*.data" = ""\n') as service:
        unknown = service.put("shop/order/data/D/data.xml")
    assert (unknown.status, unknown.cause) == (
        500,
        "no provider is configured: svc.persistence.provider.shop.order.data is blank",
    )
