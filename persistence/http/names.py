"""The names of the service's own headers: those of requests, and those of responses in one dialect, made once."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.dialect import Dialect

REQUEST_NAMES = frozenset(
    {
        "Created-Existing",
        "Create-Flat-View",
        "Credentials",
        "Datasource",
        "Decrypt",
        "For-Document-Id",
        "For-Document-IsDraft",
        "Form-Definition-Version",
        "Group",
        "Group-Existing",
        "Hash-Algorithm",
        "Hash-Value",
        "Path-To-Holder",
        "Roles",
        "Singleton",
        "Username",
        "Username-Existing",
        "Workflow-Stage",
    }
)
"""Headers of requests that are read, without the prefix of the dialect (spec crud 3)."""


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """Response headers as they go out."""

    app: str
    created: str
    deleted: str
    did_encrypt: str
    document: str
    form: str
    group: str
    hash_algorithm: str
    hash_value: str
    last_modified: str
    modifier: str
    notice: str
    operations: str
    organization: str
    refused: str
    stage: str
    username: str
    valid: str
    version: str


def header_names(dialect: Dialect) -> HeaderNames:
    """The response header names of a dialect (spec crud 4.3)."""
    return HeaderNames(
        app=dialect.header("Form-Definition-App"),
        created=dialect.header("Created"),
        deleted=dialect.header("Deleted"),
        did_encrypt=dialect.header("Did-Encrypt"),
        document=dialect.header("Document"),
        form=dialect.header("Form-Definition-Form"),
        group=dialect.header("Group"),
        hash_algorithm=dialect.header("Hash-Algorithm"),
        hash_value=dialect.header("Hash-Value"),
        last_modified=dialect.header("Last-Modified"),
        modifier=dialect.header("Last-Modified-By-Username"),
        notice=dialect.header("Notice"),
        operations=dialect.header("Operations"),
        organization=dialect.header("Organization"),
        refused=dialect.header("Refused"),
        stage=dialect.header("Workflow-Stage"),
        username=dialect.header("Username"),
        valid=dialect.header("Valid"),
        version=dialect.header("Form-Definition-Version"),
    )
