"""The service without an index that hears of what is saved: what a PUT costs without it."""

from persistence import app
from persistence.model.addresses import Form
from persistence.providers import trees


class Deaf:
    """In the place of the indexer: it hears nothing."""

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        """Begin to hear nothing."""

    def changing(self, form: Form, document: str) -> None:
        """A document is about to change."""

    def changed(self, form: Form, document: str) -> None:
        """It has changed."""


trees.Updater = Deaf  # type: ignore[assignment,misc]

app = app.create_app()
