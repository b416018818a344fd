"""Data of generated and of real forms with some controls marked: what is marked is unreadable, and all comes back."""

from __future__ import annotations

import copy
import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from persistence.catalog import EncryptedControls
from persistence.crypto import DataCipher, KeyRing, ValueCipher
from persistence.forms.controls import read_controls
from persistence.forms.encryption import ValueDecrypter, ValueEncrypter
from persistence.forms.migration import migrate
from persistence.model import addresses
from persistence.model.versions import DATA_FORMATS
from tests.examples import examples
from tests.forms.generated import forms
from tests.forms.vectors import Form

CIPHER = ValueCipher(KeyRing("a", {"a": bytes(32)}), addresses.Form("a", "f"), "1")
FR = "{http://orbeon.org/oxf/xml/form-runner}"
FEW = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def marked(definition: bytes, chance: random.Random) -> bytes:
    """The definition with some of its controls marked, each in one of the two ways."""
    root = etree.fromstring(definition)
    for control in root.iterfind(".//*[@id]"):
        if control.get("id", "").endswith("-control") and chance.random() < 0.5:
            if chance.random() < 0.5:
                etree.SubElement(control, f"{FR}encrypt")
            else:
                control.set("class", f"{control.get('class', '')} fr-encrypt".strip())
    return etree.tostring(root)


def data_of(definition: bytes) -> bytes:
    """The data inside a definition, with a text of its own in every empty leaf."""
    data = etree.fromstring(definition).find(".//{*}instance[@id='fr-form-instance']/*")
    data = copy.deepcopy(data)
    for number, leaf in enumerate(each for each in data.iter("*") if len(each) == 0):
        leaf.text = f"value {number} of \u00e9"
    return etree.tostring(data)


def sealed(data: bytes, paths: frozenset[tuple[str, ...]]) -> bytes:
    with ValueEncrypter(paths, (), DataCipher(CIPHER).encrypt, lambda: "s", lambda _held, _is_said: False) as sealing:
        return b"".join(sealing.edited([data]))


def opened(data: bytes) -> bytes:
    with ValueDecrypter(CIPHER.decrypt) as opening:
        return b"".join(opening.edited([data]))


def check(definition: bytes) -> int:
    """Encrypt data of the definition's own format and both others; how many values were."""
    count = 0
    for data_format in DATA_FORMATS:
        migrated = migrate(definition, data_format, is_unpublished=True)
        paths = EncryptedControls.of(read_controls(migrated)).paths
        data = data_of(migrated)
        root = etree.fromstring(data)
        secrets = {
            leaf.text or ""
            for path in paths
            for element in root.findall("/".join(path))
            for leaf in element.iter("*")
            if leaf.text and len(leaf) == 0
        }
        stored = sealed(data, paths)
        tree = etree.fromstring(stored)
        assert not secrets & {element.text for element in tree.iter("*")}
        assert sum(element.get(f"{FR}value-encrypted") == "true" for element in tree.iter("*")) == len(secrets)
        assert canonical(opened(stored)) == canonical(data)
        count += len(secrets)
    return count


def canonical(data: bytes) -> list[tuple[str, dict[str, str], str | None]]:
    return [
        (str(each.tag), {str(k): str(v) for k, v in each.items()}, each.text) for each in etree.fromstring(data).iter()
    ]


@FEW
@given(forms(fewest=1), st.randoms(use_true_random=False))
def test_data_of_generated_forms_comes_back_in_every_format(form: Form, chance: random.Random) -> None:
    check(marked(form.document().encode(), chance))


def test_data_of_real_forms_comes_back_in_every_format(corpus: Path) -> None:
    """And real data with half of its controls marked, as the seed's runtime saves it, in format 4.0.0."""
    count = found = 0
    for path in sorted(corpus.rglob("form.xhtml")):
        count += check(marked(path.read_bytes(), random.Random(path.parent.name)))
    for path in sorted(corpus.rglob("data/*/data.xml")):
        definition = path.parents[2] / "form" / "form.xhtml"
        if definition.exists():
            paths = EncryptedControls.of(read_controls(marked(definition.read_bytes(), random.Random(1)))).paths
            stored = sealed(path.read_bytes(), paths)
            assert canonical(opened(stored)) == canonical(path.read_bytes())
            found += stored.count(b"enc2:")
    assert count > 300
    assert found > 100
