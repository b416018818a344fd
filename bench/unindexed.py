"""The service without an index that hears of what is saved: what a PUT costs without it."""

from persistence import app as service
from persistence.store.observing import NOBODY

service.Indexer = lambda *_: NOBODY  # type: ignore[assignment,misc]

app = service.create_app()
