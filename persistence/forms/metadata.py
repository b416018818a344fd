"""What the service keeps of a definition's metadata, read while it streams in (spec forms 6.2, spec search 4.3)."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_TITLE, MOST_METADATA
from persistence.model.form_versions import FormMetadata
from persistence.xml.streaming import SEPARATOR, Streaming

XHTML = "http://www.w3.org/1999/xhtml"
XFORMS = "http://www.w3.org/2002/xforms"
LANGUAGE = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}lang"

_PATH: tuple[tuple[str, str | None], ...] = (
    (f"{XHTML}{SEPARATOR}html", None),
    (f"{XHTML}{SEPARATOR}head", None),
    (f"{XFORMS}{SEPARATOR}model", "fr-form-model"),
    (f"{XFORMS}{SEPARATOR}instance", "fr-form-metadata"),
    ("metadata", None),
)
"""The one place of the metadata: an element's name, and its id where it must have one."""

ENCRYPT, ENCRYPT_CLASS = f"http://orbeon.org/oxf/xml/form-runner{SEPARATOR}encrypt", "fr-encrypt"
PERMISSIONS = "permissions"
_WANTED = ("title", "available", "singleton", PERMISSIONS)

_A_TITLE = 16
"""Characters that an item takes there, however short it is."""


class MetadataReader(Streaming):
    """Checks a definition, and collects what ``metadata`` then tells.

    Raises, besides what ``Streaming`` does:
        BadRequestError: titles and permissions are longer than anyone's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self._matched = 0
        self._item: str | None = None
        self._language = ""
        self._pieces: list[str] = []
        self._kept = 0
        self._titles: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._encrypts = False

    @property
    def metadata(self) -> FormMetadata:
        """What was found; of several elements of one name the first counts, of titles the last of each language."""
        singleton = self._said.get("singleton")
        return FormMetadata(
            titles=self._titles,
            available=self._said.get("available") != "false",
            singleton=None if singleton is None else singleton == "true",
            permissions=self._said.get(PERMISSIONS),
            encrypts=self._encrypts,
        )

    @property
    def is_in_permissions(self) -> bool:
        """Whether the element that has begun last is that of the permissions, or in it."""
        return self._item == PERMISSIONS

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Follow the path to the metadata, and take down what is wanted below."""
        super().start(name, attributes)
        if name == ENCRYPT or ENCRYPT_CLASS in attributes.get("class", "").split():
            self._encrypts = True
        if self._item == PERMISSIONS:
            self._keep(_start_tag(name, attributes))
        elif self._matched == len(_PATH):
            if self.depth == len(_PATH) + 1 and name in _WANTED:
                self._item = name
                self._language = attributes.get(LANGUAGE, "")
                self._pieces = []
                self._keep(_start_tag(name, attributes) if name == PERMISSIONS else "")
                self._count(len(self._language) + _A_TITLE)
        elif self._matched == self.depth - 1:
            wanted, identity = _PATH[self._matched]
            if name == wanted and identity in (None, attributes.get("id")):
                self._matched = self.depth

    def end(self, name: str) -> None:
        """Step back on that path, or close what is being taken down."""
        if self._item == PERMISSIONS:
            self._keep(f"</{_local(name)}>")
        if self._item is not None and self.depth == len(_PATH) + 1:
            self._close(self._item, "".join(self._pieces))
            self._item = None
        self._matched = min(self._matched, self.depth - 1)
        super().end(name)

    def _close(self, item: str, text: str) -> None:
        if item == "title":
            if len(text) > LONGEST_TITLE:
                raise BadRequestError(f"the form has a title of more than {LONGEST_TITLE} characters")
            self._titles[self._language] = " ".join(text.split())
        else:
            self._said.setdefault(item, text.strip())

    def _text(self, text: str) -> None:
        if self._item is not None:
            self._keep(escape(text) if self._item == PERMISSIONS else text)

    def _keep(self, piece: str) -> None:
        self._count(len(piece))
        self._pieces.append(piece)

    def _count(self, characters: int) -> None:
        self._kept += characters
        if self._kept > MOST_METADATA:
            raise BadRequestError(f"titles and permissions of a form of more than {MOST_METADATA} characters")


def _local(name: str) -> str:
    return name.rpartition(SEPARATOR)[2]


def _start_tag(name: str, attributes: dict[str, str]) -> str:
    """A start tag without namespaces: attributes that are in one are left out."""
    own = (f" {key}={quoteattr(value)}" for key, value in attributes.items() if SEPARATOR not in key)
    return f"<{_local(name)}{''.join(own)}>"
