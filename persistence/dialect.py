"""The two dialects: every name and point where the seed and a real runtime differ. Only this module knows them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from persistence.model.addresses import DESIGNER_FORM, Form

_OF_SVC = ("- every header that begins with", "- the designer's app is", "Properties begin with")
"""Lines of the description of the interface that say how another dialect names what this one does."""
_PROPERTY = re.compile(r"\bsvc\.(?=(?:persistence|permissions|detail|access-token)\b)")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One column of the table of differences."""

    # ``deleted_read_status`` is the status of GET and HEAD of a resource that was deleted. With ``requires_version`` a
    # PUT of new data must name its form version; the designer's own data is exempt. With ``has_proxy`` the provider API
    # is called by the proxy of a runtime, which has decided already (spec crud 11). ``quotes_tags`` says whether an
    # ``ETag`` is sent in quotes, as RFC 9110 8.8.3 has it. ``is_strict`` says whether a query with an unknown element
    # or attribute is refused. ``lists_restored`` says whether a history names the revision that another one has brought
    # back. With ``restricts_searches`` a search finds what a GET of its caller would show, unless the property says
    # otherwise.
    name: str
    header_prefix: str
    designer: Form  # the form whose data are definitions that are being drawn
    property_prefix: str
    flat_view_prefix: str
    deleted_read_status: int
    requires_version: bool
    has_proxy: bool
    quotes_tags: bool
    is_strict: bool
    lists_restored: bool
    restricts_searches: bool

    def header(self, name: str) -> str:
        """The name on the wire of a header of the service, such as ``Svc-Operations``."""
        return self.header_prefix + name

    def described(self, interface: str) -> str:
        """Return the description of the interface, which has the names of ``svc``, with those of this dialect."""
        if self == SVC:
            return interface
        lines = (line for line in interface.splitlines(keepends=True) if not line.lstrip().startswith(_OF_SVC))
        text = "".join(lines).replace(SVC.header_prefix, self.header_prefix)
        text = text.replace("The names are those of dialect `svc`. In dialect", "This service speaks dialect")
        text = text.replace(f"/{SVC.designer}/", f"/{self.designer}/")
        return _PROPERTY.sub(self.property_prefix, text)


SVC = Dialect(
    name="svc",
    header_prefix="Svc-",
    designer=Form("svc", DESIGNER_FORM),
    property_prefix="svc.",
    flat_view_prefix="svc_f_",
    deleted_read_status=404,
    requires_version=False,
    has_proxy=False,
    quotes_tags=True,
    is_strict=True,
    lists_restored=True,
    restricts_searches=True,
)
ORBEON = Dialect(
    name="orbeon",
    header_prefix="Orbeon-",
    designer=Form("orbeon", DESIGNER_FORM),
    property_prefix="oxf.fr.",
    flat_view_prefix="orbeon_f_",
    deleted_read_status=410,
    requires_version=True,
    has_proxy=True,
    quotes_tags=False,
    is_strict=False,
    lists_restored=False,
    restricts_searches=False,
)
DIALECTS = {dialect.name: dialect for dialect in (SVC, ORBEON)}
