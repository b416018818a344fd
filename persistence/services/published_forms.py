"""The form metadata API: the published forms that a query finds, as a user may see them (spec search 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from persistence.errors import BadAddressError
from persistence.forms.form_list_xml import FormListWriter, read_form_query
from persistence.model.addresses import Form
from persistence.model.form_query import FormQuery
from persistence.model.form_versions import PublishedVersion
from persistence.model.permissions import Permissions
from persistence.model.users import Admin, User, admin_entries, is_admin
from persistence.providers.router import Router
from persistence.services.access import permissions_of
from persistence.services.form_listing import Listed, operations, select


class PublishedForms:
    """Answers queries with XML. A version that cannot be read is left out; methods raise ``DiskError``."""

    def __init__(self, router: Router, admins: Iterable[Admin], *, is_strict: bool) -> None:
        """With ``is_strict``, refuse queries with unknown elements or attributes."""
        self._router = router
        self._is_strict = is_strict
        self._admins = tuple(admins)
        self._list = FormListWriter()

    def find(self, query: FormQuery, user: User) -> bytes:
        """The list.

        Raises:
            BadAddressError: no application or form can have the name that is looked up.
            BadRequestError: the list would be too large.
        """
        total, page = select(self._listed(self._looked_up(query), user), query)
        return self._list.write(total, ((one.published, " ".join(one.operations)) for one in page))

    def names(self, app: str | None, user: User) -> set[Form]:
        """The forms that the list shows to a user, or those of one application."""
        listed = self._listed(self._looked_up(FormQuery(app=app, latest_only=True)), user)
        return {one.published.form for one in select(listed, FormQuery())[1]}

    def search(self, body: Iterable[bytes], user: User) -> bytes:
        """The list for a query in XML.

        Raises:
            BadRequestError: the query is malformed, or asks for what there is not.
            PersistenceError: whatever ``body`` raises about the client.
        """
        query = read_form_query(body, is_strict=self._is_strict)
        try:
            return self.find(query, user)
        except BadAddressError:  # a filter may name what is no form's name
            return self._list.write(0, ())

    def _looked_up(self, query: FormQuery) -> Iterator[PublishedVersion]:
        """Spec search 4.4, steps 1 and 2."""
        if query.app is not None and query.form is not None:
            form = Form(query.app, query.form)
            forms = iter([self._router.of(form).catalog.readable(form)])
        else:
            forms = self._router.published(query.app, query.form)
        for versions in forms:
            yield from islice(versions, 1) if query.latest_only else versions

    def _listed(self, versions: Iterable[PublishedVersion], user: User) -> Iterator[Listed]:
        entries = admin_entries(self._admins, user)
        known: dict[tuple[int, bool], tuple[Permissions | None, tuple[str, ...]]] = {}
        for published in versions:
            permissions = permissions_of(published, self._router.properties.of(published.form))
            administers = is_admin(entries, published.form)
            key = id(permissions), administers
            found = known.get(key)
            if found is None:  # kept with the value, whose id can then be no other's
                found = known[key] = permissions, operations(permissions, user, is_admin=administers)
            yield Listed(published, found[1])
