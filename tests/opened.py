"""What a test has opened in its own process is closed at its end, last things first."""

import threading
from typing import TypeVar

from persistence.catalog import Catalog
from persistence.closable import Closable
from persistence.dialect import Dialect
from persistence.index.sync.updater import TreeIndex
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index, provider_of_tree
from persistence.providers.router import only
from persistence.services.apis import Services
from persistence.services.rules import Access, AccessTokens
from persistence.settings import Settings
from persistence.storage.store import Store

_OWN_THREADS = ("updater", "reencryption", "tree-lease", "audit-sync")

C = TypeVar("C", bound=Closable)

_open: dict[int, Closable] = {}


def opened(each: C) -> C:
    """Let something be closed at the end of the test, and return it."""
    _open[id(each)] = each
    return each


def close(each: Closable) -> None:
    """Close something now."""
    _open.pop(id(each), None)
    each.close()


def close_all() -> None:
    """Close everything that is still open, the latest first."""
    while _open:
        _open.popitem()[1].close()


def threads() -> list[str]:
    """The threads of services that are still there."""
    return [each.name for each in threading.enumerate() if each.name in _OWN_THREADS]


def services(store: Store, dialect: Dialect, properties: Properties) -> Services:
    """The services over a tree, with an index that hears only of changes that others note."""
    settings = Settings(data=store.root, dialect=dialect.name)  # type: ignore[arg-type]  # one of the two
    index = opened(open_index(settings, properties, store.root))
    return services_of(store, dialect, properties, index)


def services_of(store: Store, dialect: Dialect, properties: Properties, index: TreeIndex) -> Services:
    """The services over a tree that has everything; store and index stay the caller's."""
    return Services.public(
        only(provider_of_tree(store, index, Catalog(store)), properties), Access(dialect, AccessTokens(tuple))
    )
