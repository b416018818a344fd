"""What is known of published definitions: read once for each state they are in, whoever changes it (spec search 4)."""

import os
from pathlib import Path

import pytest

from persistence import catalog
from persistence.catalog import Catalog
from persistence.dialect import SVC
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.properties.properties import Properties
from persistence.services.rules import Put
from persistence.storage.store import Store
from persistence.storage.stored_revision import StoredRevision
from tests.forms.vectors import Form as Definition
from tests.forms.vectors import bind, cell, section
from tests.initialised import initialised
from tests.opened import opened, services
from tests.published import PERMISSIONS, Planter, definition
from tests.sidecars import resealed

LEAVE = Form("hr", "leave")


def of_control(name: str) -> bytes:
    """A definition with one control, which is its title, too."""
    form = Definition("<form/>", bind("s", bind(name)), section("s", cell(name)), meta=f"<title>{name}</title>")
    return form.document().encode()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(Store(initialised(tmp_path), lock_timeout=5))


def publish(store: Store, name: str) -> None:
    definitions = services(store, SVC, Properties.load({}, SVC.property_prefix)).definitions
    definitions.write(LEAVE, FORM_XHTML, Put(), [of_control(name)])


def test_controls_and_metadata_are_read_once_for_each_state(store: Store, tmp_path: Path) -> None:
    catalog = Catalog(store)

    def known() -> tuple[str, str]:
        """The same objects twice, and what they say."""
        definition = catalog.of(LEAVE, 1)
        found, published = definition.controls, definition.published
        assert found is not None
        assert catalog.of(LEAVE, 1).controls is found
        assert catalog.of(LEAVE, 1).published is published
        return found[0].name, published.metadata.titles[""]

    publish(store, "one")
    assert known() == ("one", "one")
    publish(store, "two")
    assert known() == ("two", "two")
    (tmp_path / "hr/leave/form/1/form.xhtml").write_bytes(of_control("three"))
    assert known() == ("three", "three")


def test_index_keys_belong_to_the_state_of_the_fingerprint(store: Store) -> None:
    before = Catalog(store).of(LEAVE, 1)
    assert (before.is_stored, before.controls, before.published) == (False, None, None)
    publish(store, "one")
    after = Catalog(store).of(LEAVE, 1)
    assert not before.index_keys("4.0.0").is_published
    assert before.known_index_keys("4.0.0") == before.index_keys("4.0.0")
    assert after.known_index_keys("4.0.0") is None
    assert after.index_keys("4.0.0").is_published
    assert after.known_index_keys("4.0.0") is after.index_keys("4.0.0")


# What a process lists that has listed the forms before: what has changed since, whoever changed it (spec search 4).

WHEN = "2024-05-01T10:00:00.000Z"
LATER = "2024-06-01T10:00:00.000Z"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A tree with three forms, one of them with two versions."""
    planter = Planter(tmp_path)
    for form, version in (("hr/leave", 1), ("hr/leave", 2), ("hr/travel", 1), ("it/desk", 1)):
        planter.publish(form, version, f"<title>{form} {version}</title>{PERMISSIONS}", WHEN, "fay")
    return tmp_path


@pytest.fixture
def known(data: Path) -> Catalog:
    """The catalog of a process that has listed all versions."""
    catalog = Catalog(opened(Store(str(data), lock_timeout=5)))
    assert len(listed(catalog)) == 4
    return catalog


def listed(catalog: Catalog) -> dict[str, str]:
    """The titles of all versions."""
    versions = [found for _, form in catalog.forms() for found in form]
    assert all(found.permissions for found in versions)
    return {f"{found.form} {found.version}": found.metadata.titles[""] for found in versions}


def read_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[str]]:
    """What a process lists, and the versions whose files it has read for that."""
    read: list[str] = []
    real = Store.read

    def counted(self: Store, address: DefinitionAddress, *, content: bool) -> StoredRevision | None:
        read.append(f"{address.form} {address.version}")
        return real(self, address, content=content)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "read", counted)
        return listed(catalog), read


def test_what_was_read_is_not_read_again_and_one_form_is_listed_highest_version_first(
    known: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_again(known, monkeypatch) == (listed(known), [])
    assert known.of(LEAVE, 2).published
    assert [found.version for found in known.published(LEAVE, skips_damaged=True)] == [2, 1]


def test_what_has_changed_since_is_read(data: Path, known: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published again, edited by hand in place, published for the first time, removed by hand, and left as it was."""
    before = listed(known)
    Planter(data).publish("hr/leave", 1, f"<title>again</title>{PERMISSIONS}", LATER)
    (data / "hr/leave/form/2" / FORM_XHTML).write_bytes(definition(f"<title>by hand</title>{PERMISSIONS}"))
    Planter(data).publish("it/new", 1, f"<title>new</title>{PERMISSIONS}", LATER)
    (data / "hr/travel/form/1").rename(data / "hr/travel/form/elsewhere")
    found, read = read_again(known, monkeypatch)
    assert found == {
        "hr/leave 1": "again",
        "hr/leave 2": "by hand",
        "it/desk 1": before["it/desk 1"],
        "it/new 1": "new",
    }
    assert set(read) == set(found) - {"it/desk 1"}


def test_a_sidecar_of_the_same_time_and_size_is_read(data: Path, known: Catalog) -> None:
    sidecar = data / "hr/travel/form/1/form.xhtml.json"
    before = sidecar.read_bytes(), sidecar.stat()
    other = data / "other"
    other.write_bytes(before[0])
    resealed(other, metadata={"titles": {"": "hr/travel 9"}, "permissions": PERMISSIONS})
    assert len(other.read_bytes()) == len(before[0])
    os.utime(other, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
    other.rename(sidecar)
    assert listed(known)["hr/travel 1"] == "hr/travel 9"


@pytest.mark.parametrize(("limit", "most"), [("VERSIONS_KEPT", 3), ("MOST_CATALOG", 1_000)])
def test_more_than_is_kept_in_memory_is_listed(
    known: Catalog, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(catalog, limit, most)
    assert len(listed(Catalog(known.storage))) == 4


def test_a_version_that_is_read_again_counts_once(data: Path, known: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing one version again and again does not use up the bounds of the summaries."""
    monkeypatch.setattr(catalog, "VERSIONS_KEPT", 6)
    for minute in range(10):
        Planter(data).publish(
            "hr/leave", 1, f"<title>{minute}</title>{PERMISSIONS}", f"2024-06-01T10:{minute:02}:00.000Z"
        )
        assert len([version for _, versions in known.forms() for version in versions]) == 4
