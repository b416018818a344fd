"""What the summary page asks for: searches with each filter, by those who see some of it."""

from dataclasses import replace

import pytest

from tests import orders, searches
from tests.http.runtime.proxy import Proxy
from tests.http.runtime.releases import BOB, CLEO, CLERKS, NOBODY, OWNERS, Person
from tests.orders import found
from tests.service import V1

SINCE = '<query metadata="{}" match="{}">{}</query>'
TIMED = ("T5a", "T5b", "T5c", "T5d", "T5h", "T5i")
"""Vectors that name instants at which nothing is saved here."""


@pytest.fixture
def saved(lea: Proxy, form: str) -> Proxy:
    """A proxy of somebody without data, after the saves of spec search 8.1 in their order."""
    lea.publish(form, orders.definition())
    saves = sorted((save.when, document, save) for document in orders.DOCUMENTS for save in document.saves)
    for _, document, save in saves:
        proxy = lea.of(Person(save.by.name or "", save.by.group or ""))
        path = f"{form}/{'draft' if document.is_draft else 'data'}/{document.name}/data.xml"
        stage = {"Workflow_Stage": save.stage} if save.stage else {}
        assert proxy.write(path, document.body, **V1, **stage).status in (201, 204)
    return lea.of(BOB)


def search(proxy: Proxy, form: str, body: str, version: object = 1) -> list[str]:
    return found(proxy.post(f"/search/{form}", f"<search>{body}</search>", Form_Definition_Version=version).body)


def test_each_filter_of_the_page(saved: Proxy, form: str) -> None:
    """The vectors of spec search 8.2; those about times are asked with the creation and the last save of d-2."""
    every = [(saved.of(NOBODY), each) for each in searches.VECTORS] + [(saved, each) for each in searches.DRAFTS]
    for proxy, vector in every:
        if vector.number not in TIMED:
            assert search(proxy, form, vector.children) == vector.found, vector.number
    second = saved.send("HEAD", f"{form}/data/d-2/data.xml")
    created, modified = second["Orbeon-Created"], second["Orbeon-Last-Modified"]
    assert search(saved, form, SINCE.format("created", "gte", created)) == ["d-4°", "d-3°", "d-2", "d-3"]
    assert search(saved, form, SINCE.format("created", "lt", created)) == ["d-1"]
    between = SINCE.format("last-modified", "gte", created) + SINCE.format("last-modified", "lt", modified)
    assert search(saved, form, between) == ["d-3"]


RESTRICTED = {
    OWNERS: {"ann": ["d-3°", "d-3", "d-1"], "bob": ["d-4°", "d-2"], "cleo": [], "": []},
    CLERKS: {"ann": [], "bob": [], "cleo": ["d-4°", "d-3°", "d-2", "d-3", "d-1"], "": []},
    "<permissions/>": {"ann": [], "bob": [], "cleo": [], "": []},
}


@pytest.mark.parametrize("metadata", RESTRICTED, ids=["owners", "clerks", "empty"])
def test_the_provider_leaves_out_what_a_user_may_not_see(saved: Proxy, form: str, metadata: str) -> None:
    """Unlike data, lists are restricted by the provider (spec search 1.8), but not those of an export."""
    saved.publish(form, orders.definition(metadata))
    people = (Person("ann", "sales"), BOB, CLEO, NOBODY)
    assert {each.name: search(saved.of(each), form, "") for each in people} == RESTRICTED[metadata]
    internal = replace(saved.of(NOBODY), is_internal=True)
    assert search(internal, form, "<drafts>exclude</drafts>") == ["d-2", "d-3", "d-1"]
    values = '<distinct-values><query metadata="created-by"/></distinct-values>'
    shown = [each.text for each in internal.search(form, values, 1, "distinct-values").iter("value")]
    assert (shown, internal.documents(form, "all")) == (["ann", "bob"], ["d-1", "d-3", "d-2"])
