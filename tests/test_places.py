"""Where providers have their places: what cannot be is refused when the service starts."""

import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from persistence.dialect import SVC
from persistence.errors import StartupError
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers import opened
from persistence.providers.locations import check, defined_elsewhere, definitions_root
from persistence.settings import Roots, load
from persistence.storage.stored_revision import Integrity
from tests.initialised import initialised

ROOTS = Roots("/srv/data", {"disk2": "/srv/disk2", "same": "/srv/data"})
SPLIT = '"svc.persistence.provider.acme.*.data" = "a"\n"svc.persistence.a.datasource" = "disk2"'


def properties(text: str) -> Properties:
    return Properties.load(tomllib.loads(text), SVC.property_prefix)


def refusal(text: str, roots: Roots = ROOTS) -> str:
    with pytest.raises(StartupError) as error:
        check(properties(text), roots)
    return str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SPLIT,
        '"svc.persistence.unused.datasource" = "disk3"',
        '"svc.persistence.files.datasource" = "same"',
        '"svc.persistence.provider.*.*.form.attachments" = "a"',
    ],
)
def test_every_provider_that_forms_have_has_a_place(text: str) -> None:
    check(properties(text), ROOTS)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            '"svc.persistence.provider.a.*.*.attachments" = "fs"',
            "provider 'fs' keeps attachments: its base-path must be a directory, not ''",
        ),
        (
            '"svc.persistence.provider.a.*.*.attachments" = "fs"\n"svc.persistence.fs.base-path" = "/x/{$name}"',
            "provider 'fs' keeps attachments: its base-path must be a directory, not '/x/{$name}'",
        ),
        (
            '"svc.persistence.provider.a.*.*.attachments" = "fs"\n"svc.persistence.fs.base-path" = "/srv/disk2/x"',
            "the directory /srv/disk2/x lies within /srv/disk2: each tree needs one of its own",
        ),
        (
            '"svc.persistence.provider.a.*.*.attachments" = "fs"\n"svc.persistence.fs.base-path" = "/srv/disk2"',
            "the directory /srv/disk2 lies within /srv/disk2: each tree needs one of its own",
        ),
    ],
)
def test_a_provider_without_its_place_is_refused(text: str, cause: str) -> None:
    assert refusal(text) == cause


def test_no_tree_lies_in_another() -> None:
    nested = Roots("/srv/data", {"inner": "/srv/data/hr"})
    assert refusal("", nested) == "the directory /srv/data/hr lies within /srv/data: each tree needs one of its own"
    check(properties(""), Roots("/srv/data", {"beside": "/srv/data2"}))


def test_roots_are_those_of_the_settings_each_once(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'data = "/srv/data"\n[datasource.disk2]\ndata = "/srv/disk2"\n[datasource.same]\ndata = "/srv/data/"\n'
    )
    roots = load(str(file), environment={}).settings.roots
    assert list(roots) == ["/srv/data", "/srv/disk2"]
    assert [roots.place(name) for name in ("", "disk2", "same", "none")] == [
        "/srv/data",
        "/srv/disk2",
        "/srv/data",
        None,
    ]


def test_definitions_elsewhere_are_known_for_the_tree_that_has_the_data(tmp_path: Path) -> None:
    first, second = str(tmp_path / "data"), str(tmp_path / "disk2")
    roots = Roots(first, {"disk2": second})
    for root in roots:
        initialised(root)
    for form in ("acme/order", "hr/leave"):
        (tmp_path / "data" / form).mkdir(parents=True)
    split, order = properties(SPLIT), Form("acme", "order")
    assert definitions_root(order, second, split, roots) == first
    assert definitions_root(Form("hr", "leave"), second, split, roots) == second
    assert list(defined_elsewhere(second, split, roots)) == [order]
    assert definitions_root(order, first, split, roots) == first, "its data is not there"
    assert list(defined_elsewhere(first, split, roots)) == []


def test_a_tree_has_one_catalog_whoever_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two, rules and index would not know that they go by the same definitions."""

    def slowly(*_: object) -> object:
        time.sleep(0.05)
        return object()

    monkeypatch.setattr(opened, "Catalog", slowly)
    catalog_at = opened.catalogs(Integrity())
    with ThreadPoolExecutor(4) as threads:
        assert len({id(each) for each in threads.map(catalog_at, [initialised(tmp_path / "data")] * 4)}) == 1
