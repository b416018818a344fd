"""What is kept in memory of a definition: read once for each state it is in, by whoever changed it."""

from pathlib import Path

import pytest

from persistence.catalog import Catalog
from persistence.dialect import SVC
from persistence.model.addresses import FORM_XHTML, Form
from persistence.properties.properties import Properties
from persistence.services.rules import Put
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened, services

LEAVE = Form("hr", "leave")
DEFINITION = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><s><{0}/></s></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="s-bind" ref="s" name="s">
<xf:bind id="{0}-bind" ref="{0}" name="{0}"/></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata><title>{0}</title></metadata></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="s-section" bind="s-bind"><fr:grid id="g-grid"><fr:c>
<xf:input id="{0}-control" bind="{0}-bind"/></fr:c></fr:grid></fr:section></fr:body></fr:view></xh:body></xh:html>"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(Store(initialised(tmp_path), lock_timeout=5))


def publish(store: Store, name: str) -> None:
    definitions = services(store, SVC, Properties.load({}, SVC.property_prefix)).definitions
    definitions.write(LEAVE, FORM_XHTML, Put(), [DEFINITION.format(name).encode()])


def test_controls_and_metadata_are_read_once_for_each_state(store: Store, tmp_path: Path) -> None:
    catalog = Catalog(store)

    def known() -> tuple[str, str]:
        """The same objects twice, and what they say."""
        definition = catalog.of(LEAVE, 1)
        found, published = definition.controls, definition.published
        assert found is not None
        assert published is not None
        assert catalog.of(LEAVE, 1).controls is found
        assert catalog.of(LEAVE, 1).published is published
        return found[0].name, published.metadata.titles[""]

    publish(store, "one")
    assert known() == ("one", "one")
    publish(store, "two")
    assert known() == ("two", "two")
    (tmp_path / "hr/leave/form/1/form.xhtml").write_text(DEFINITION.format("three"))
    assert known() == ("three", "three")


def test_what_is_not_published_is_not_kept(store: Store) -> None:
    definition = Catalog(store).of(LEAVE, 1)
    assert not definition.is_stored
    assert definition.controls is None
    assert definition.published is None


def test_index_keys_belong_to_the_state_of_the_fingerprint(store: Store) -> None:
    before = Catalog(store).of(LEAVE, 1)
    publish(store, "one")
    after = Catalog(store).of(LEAVE, 1)
    assert not before.index_keys("4.0.0").is_published
    assert before.known_index_keys("4.0.0") == before.index_keys("4.0.0")
    assert after.known_index_keys("4.0.0") is None
    assert after.index_keys("4.0.0").is_published
    assert after.known_index_keys("4.0.0") is after.index_keys("4.0.0")
