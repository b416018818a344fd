"""Forms and versions as they are named on a command line."""

from __future__ import annotations

import re

from persistence.cli.texts import safe
from persistence.errors import BadRequestError
from persistence.model.addresses import Form
from persistence.model.sidecar import LARGEST_VERSION

_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def form_and_version(text: str) -> tuple[Form, int | None]:
    """What ``APP/FORM`` or ``APP/FORM/VERSION`` names.

    Raises:
        BadRequestError: it is neither.
    """
    match text.split("/"):
        case [app, name] if app and name:
            return Form(app, name), None
        case [app, name, number] if app and name:
            return Form(app, name), version(number)
        case _:
            raise BadRequestError(f"{safe(text)} is not APP/FORM or APP/FORM/VERSION")


def version(text: str) -> int:
    """A version of a form.

    Raises:
        BadRequestError: it is none.
    """
    if not _VERSION.fullmatch(text) or int(text) > LARGEST_VERSION:
        raise BadRequestError(f"{text!r} is no version of a form: a number from 1 is")
    return int(text)
