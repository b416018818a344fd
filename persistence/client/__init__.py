"""A client of the service: publish, save, load, search, attach and more, in a few lines (docs/client.md).

::

    with PersistenceClient("http://127.0.0.1:8080", user="lea") as client:
        leave = client.form("hr", "leave")
        leave.publish(Path("leave.xhtml"))
        request = leave.create("<form><name>Lea</name></form>")
        leave.save(request, "<form><name>Lea Example</name></form>")

Exceptions are those of ``persistence.errors``. The values of the service that calls take and return are here, too.
"""

from persistence import wire
from persistence.client.client_documents import DeletedData as DeletedData
from persistence.client.client_documents import DocumentsClient as DocumentsClient
from persistence.client.client_documents import LoadedDefinition as LoadedDefinition
from persistence.client.client_documents import LoadedDocument as LoadedDocument
from persistence.client.client_documents import SavedAttachment as SavedAttachment
from persistence.client.client_documents import SavedDocument as SavedDocument
from persistence.client.client_documents import ServiceHealth as ServiceHealth
from persistence.client.form_client import FormClient as FormClient
from persistence.client.form_client import HeldLease as HeldLease
from persistence.client.form_client import PersistenceClient as PersistenceClient
from persistence.client.form_client import SearchResults as SearchResults
from persistence.forms.messages import HistoryEntry as HistoryEntry
from persistence.forms.messages import ListedForm as ListedForm
from persistence.forms.messages import ReportedDifference as ReportedDifference
from persistence.forms.messages import ReportedImport as ReportedImport
from persistence.forms.messages import ReportedPurge as ReportedPurge
from persistence.forms.messages import ReportedReencryption as ReportedReencryption
from persistence.forms.messages import ReportedReindexing as ReportedReindexing
from persistence.model.addresses import Form as Form
from persistence.model.permissions import Role as Role
from persistence.model.permissions import User as User
from persistence.model.queries import Comparison as Comparison
from persistence.model.queries import ControlFilter as ControlFilter
from persistence.model.queries import DraftFilter as DraftFilter
from persistence.model.queries import Drafts as Drafts
from persistence.model.queries import ExportedContent as ExportedContent
from persistence.model.queries import ExportQuery as ExportQuery
from persistence.model.queries import Field as Field
from persistence.model.queries import FieldFilter as FieldFilter
from persistence.model.queries import FormPattern as FormPattern
from persistence.model.queries import FoundDocuments as FoundDocuments
from persistence.model.queries import Query as Query
from persistence.model.queries import RevisionHistory as RevisionHistory
from persistence.model.queries import SearchResult as SearchResult
from persistence.model.queries import Sort as Sort
from persistence.model.queries import TextMatch as TextMatch
from persistence.model.texts import Instant as Instant
from persistence.model.texts import from_datetime as from_datetime
from persistence.model.texts import to_datetime as to_datetime
from persistence.wire import CallPolicy as CallPolicy

Download = wire.Answer
