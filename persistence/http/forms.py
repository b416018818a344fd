"""The form metadata API: which forms are published (spec search 4)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, Request, Response, request

from persistence.http import bodies
from persistence.http.datasources import ServicesOf
from persistence.http.parsing import RequestParser
from persistence.http.responses import xml
from persistence.http.routes import without_head
from persistence.limits import LARGEST_QUERY
from persistence.model.form_query import FormField, FormFilter, FormMatch, FormQuery
from persistence.model.instants import parse_time
from persistence.model.texts import flag

_PATHS = ("/form", "/form/<app>", "/form/<app>/<form>")


@dataclass(frozen=True, slots=True)
class Forms:
    """The handlers of one face."""

    services: ServicesOf
    parser: RequestParser

    def blueprint(self, name: str, prefix: str) -> Blueprint:
        """The routes below ``prefix``."""
        blueprint = Blueprint(name, __name__, url_prefix=prefix)
        for path in _PATHS:
            blueprint.add_url_rule(path, "forms", self.forms, methods=("GET", "POST"), provide_automatic_options=False)
        blueprint.record(without_head)
        return blueprint

    def forms(self, app: str | None = None, form: str | None = None) -> Response:
        """``/form/$app/$form``; the query of a POST is in its body only."""
        user = self.parser.user(request)
        if request.method == "POST":
            body = self.services().forms.search(bodies.chunks(request.environ, LARGEST_QUERY), user)
        else:
            body = self.services().forms.find(_query(request, app, form), user)
        return xml(body)


def _query(request: Request, app: str | None, form: str | None) -> FormQuery:
    """The query of a GET (spec search 4.1)."""
    since = request.args.get("modified-since")
    later = (
        FormFilter(FormField.LAST_MODIFIED, FormMatch.GT, parse_time(since, "modified-since"))
        if since is not None
        else None
    )
    return FormQuery(
        app=app,
        form=form,
        latest_only=not flag(request.args.get("all-versions"), "all-versions"),
        all_forms=flag(request.args.get("all-forms"), "all-forms") is True,
        ignore_admin=flag(request.args.get("ignore-admin-permissions"), "ignore-admin-permissions") is True,
        filters=(later,) if later is not None else (),
    )
