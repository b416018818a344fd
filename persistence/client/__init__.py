"""A client of the service: publish, save, load, search, attach and more, in a few lines (docs/client.md).

::

    with PersistenceClient("http://127.0.0.1:8080", user="lea") as client:
        leave = client.form("hr", "leave")
        leave.publish(Path("leave.xhtml"))
        request = leave.create("<form><name>Lea</name></form>")
        leave.save(request, "<form><name>Lea Example</name></form>")

Exceptions are those of ``persistence.errors``. The values of the service that calls take and return are here, too.
"""

from persistence.client.client_documents import (
    DeletedData,
    DocumentsClient,
    HistoryEntry,
    LoadedDefinition,
    LoadedDocument,
    SavedAttachment,
    SavedDocument,
    ServiceHealth,
)
from persistence.client.form_client import FormClient, HeldLease, PersistenceClient, SearchResults
from persistence.forms.messages import (
    ListedForm,
    ReportedDifference,
    ReportedImport,
    ReportedPurge,
    ReportedReencryption,
    ReportedReindexing,
)
from persistence.model.addresses import Form
from persistence.model.permissions import Role, User
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    ExportedContent,
    ExportQuery,
    Field,
    FieldFilter,
    FormPattern,
    FoundDocuments,
    Query,
    RevisionHistory,
    SearchResult,
    Sort,
    TextMatch,
)
from persistence.model.texts import Instant, from_datetime, to_datetime
from persistence.wire import Answer as Download
from persistence.wire import CallPolicy

__all__ = [
    "CallPolicy",
    "Comparison",
    "ControlFilter",
    "DeletedData",
    "DocumentsClient",
    "Download",
    "DraftFilter",
    "Drafts",
    "ExportQuery",
    "ExportedContent",
    "Field",
    "FieldFilter",
    "Form",
    "FormClient",
    "FormPattern",
    "FoundDocuments",
    "HeldLease",
    "HistoryEntry",
    "Instant",
    "ListedForm",
    "LoadedDefinition",
    "LoadedDocument",
    "PersistenceClient",
    "Query",
    "ReportedDifference",
    "ReportedImport",
    "ReportedPurge",
    "ReportedReencryption",
    "ReportedReindexing",
    "RevisionHistory",
    "Role",
    "SavedAttachment",
    "SavedDocument",
    "SearchResult",
    "SearchResults",
    "ServiceHealth",
    "Sort",
    "TextMatch",
    "User",
    "from_datetime",
    "to_datetime",
]
