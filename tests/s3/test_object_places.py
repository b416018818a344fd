"""Properties of places in buckets: what is accepted, what is refused, and what is not shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from persistence.errors import BadRequestError, StartupError
from persistence.model.addresses import Form
from persistence.model.network_addresses import Bucket, object_endpoint, parse_addressed_bucket, parse_bucket
from persistence.properties.properties import Properties
from persistence.providers import router
from persistence.providers.locations import check
from persistence.providers.opened import Providers
from persistence.settings import Roots, Settings
from tests.initialised import initialised

BIG = {"svc.persistence.provider.*.*.data.attachments": "big"}


@pytest.mark.parametrize(
    ("text", "bucket", "prefix"),
    [
        ("s3://forms", "forms", ""),
        ("s3://forms/", "forms", ""),
        ("s3://forms/a/b/", "forms", "a/b"),
        ("s3://my.forms-1/year=2026", "my.forms-1", "year=2026"),
    ],
)
def test_places(text: str, bucket: str, prefix: str) -> None:
    assert parse_bucket(text) == Bucket(bucket, prefix)


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (
            parse_bucket,
            ["s3:forms", "s3://", "s3://a", "s3://forms/../x", "s3://forms/x?y", "s3://forms/a b", "S3://x"],
        ),
        (parse_bucket, ["s3://user:hidden@forms"]),
        (object_endpoint, ["ftp://x", "http://", "http://x/path", "http://x:99999", "http://u@x", "http://x?y"]),
        (object_endpoint, ["s3://user:hidden@forms"]),
        (parse_addressed_bucket, ["forms/a", "s3://forms?key=hidden", "s3://forms?region=a&region=b"]),
        (parse_addressed_bucket, ["s3://user:hidden@forms", "s3://forms?endpoint=http://user:hidden@x"]),
    ],
)
def test_what_is_no_place_is_refused_without_its_password(read: Callable[[str], object], texts: list[str]) -> None:
    message = {parse_bucket: "must be s3://BUCKET/PREFIX", object_endpoint: "must be an address"}.get(read)
    for text in texts:
        with pytest.raises(BadRequestError, match=message) as caught:
            read(text)
        assert "hidden" not in str(caught.value)


def test_an_address_may_name_the_store_and_the_region() -> None:
    assert parse_addressed_bucket("s3://forms/a") == Bucket("forms", "a")
    given = parse_addressed_bucket("s3://forms/a?endpoint=https://s3.example.org/&region=eu-1")
    assert given == Bucket("forms", "a", "https://s3.example.org", "eu-1")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("s3://forms/a", "s3://forms/a", True),
        ("s3://forms/a", "s3://forms/a/b", True),
        ("s3://forms/a", "s3://forms/ab", False),
        ("s3://forms/a", "s3://others/a", False),
        ("s3://forms/a", "s3://forms/a?endpoint=http://x", True),
        ("s3://forms/a?endpoint=http://y", "s3://forms/a?endpoint=http://x", False),
    ],
)
def test_places_that_may_have_keys_in_common(one: str, other: str, expected: bool) -> None:  # noqa: FBT001
    assert parse_addressed_bucket(one).meets(parse_addressed_bucket(other)) is expected
    assert parse_addressed_bucket(other).meets(parse_addressed_bucket(one)) is expected


@pytest.mark.parametrize("value", ["s3://a b/c", "s3://user:hidden@forms"])
def test_a_wrong_place_is_refused_when_the_file_is_read(value: str) -> None:
    with pytest.raises(StartupError, match="must be s3://") as caught:
        Properties.load({"svc.persistence.big.base-path": value}, "svc.")
    assert "hidden" not in str(caught.value)


def test_properties_say_the_place_of_a_form() -> None:
    table = {
        **BIG,
        "svc.persistence.big.base-path": "s3://forms/x",
        "svc.persistence.big.endpoint": "http://127.0.0.1:9/",
        "svc.persistence.big.region": "here",
    }
    route = Properties.load(table, "svc.").of(Form("a", "f")).route
    assert route.attachments.place == Bucket("forms", "x", "http://127.0.0.1:9", "here")
    assert (route.attachments.attachments_kind, route.data.attachments_kind) == ("s3", "file")
    assert dict(route.attachments.mirrored) == {"Base-Path": "s3://forms/x"}


def test_a_place_within_another_is_refused(tmp_path: Path) -> None:
    table = {
        **BIG,
        "svc.persistence.provider.hr.*.data.attachments": "more",
        "svc.persistence.big.base-path": "s3://forms/x",
        "svc.persistence.more.base-path": "s3://forms/x/y",
    }
    with pytest.raises(StartupError, match="s3://forms/x/y lies within s3://forms/x"):
        check(Properties.load(table, "svc."), Roots(str(tmp_path), {}))


def test_a_provider_of_forms_cannot_be_a_bucket(tmp_path: Path) -> None:
    table = {"svc.persistence.provider.*.*.data": "big", "svc.persistence.big.uri": "s3://forms"}
    settings = Settings(data=initialised(tmp_path))
    with pytest.raises(StartupError, match="keeps attachments alone"):
        Providers(settings, Properties.load(table, "svc."), lambda *_: None)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> object:
        raise ModuleNotFoundError("No module named 'obstore'", name="obstore")

    monkeypatch.setattr(router, "resolve_name", missing)
    with pytest.raises(StartupError, match=r"needs obstore, which is not installed: .* extra \[s3\]"):
        router.loaded("persistence.s3.object_bodies")


def test_a_directory_of_one_machine_is_no_place_for_attachments_of_data_in_a_database(tmp_path: Path) -> None:
    table = {
        **BIG,
        "svc.persistence.big.base-path": str(tmp_path / "big"),
        "svc.persistence.provider.hr.*.data.attachments": "bucket",
        "svc.persistence.bucket.base-path": "s3://forms",
    }
    data = {"svc.persistence.provider.hr.*.data": "cluster", "svc.persistence.cluster.uri": "postgresql://here/forms"}
    check(Properties.load({**table, **data}, "svc."), Roots(str(tmp_path / "data"), {}))
    with pytest.raises(StartupError, match=r"the data of \*/\* is in a database"):
        check(Properties.load(table, "svc."), Roots("postgresql://here/forms", {}))
