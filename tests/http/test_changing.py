"""``POST /change``: administrators give documents another owner or stage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from persistence.client import PersistenceClient
from persistence.errors import ConflictError, NotFoundError
from persistence.http import service_routes
from persistence.model.addresses import DocumentAddress
from persistence.services.documents import Documents, FactsChange
from persistence.services.rules import Written
from tests.in_process import serving
from tests.published import definition
from tests.service import Service

FORM = "hr/leave"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = 'administrators = ["trusted"]\n"svc.persistence.files.enforce-lease" = true\n'
    with serving(tmp_path, alone=True, settings=settings, env={"PERSISTENCE_LOCAL": str(tmp_path / "local")}) as made:
        made.publish(FORM, definition(""))
        for name, owner in (("a", "bob"), ("b", "bob"), ("c", "lea")):
            made.save(FORM, name, Username=owner, Workflow_Stage="new")
        yield made


def change(service: Service, path: str = FORM, query: str = "", status: int = 200) -> dict[str, Any]:
    answer = service.call("POST", f"change/{path}?{query}", Username="root")
    assert answer.status == status, answer.cause
    decoded: dict[str, Any] = msgspec.json.decode(answer.body) if status == 200 else {"cause": answer.cause}
    return decoded


def facts(service: Service, name: str) -> tuple[str | None, str | None, str | None, str | None]:
    answer = service.get(f"{FORM}/data/{name}/data.xml")
    return (
        answer["Svc-Username"],
        answer["Svc-Group"],
        answer["Svc-Workflow-Stage"],
        answer["Svc-Last-Modified-By-Username"],
    )


def test_all_documents_of_an_owner_get_another_one(service: Service) -> None:
    before = service.get(f"{FORM}/data/a/data.xml")
    changed = change(service, query="owned-by=bob&owner=zoe&group=staff")
    assert sorted(each["document"] for each in changed["changed"]) == ["a", "b"]
    assert changed["changed"][0] | {"document": ""} == {"document": "", "owner": "bob", "group": None, "stage": "new"}
    assert (changed["failed"], changed["has_more"]) == ([], False)
    assert facts(service, "a") == facts(service, "b") == ("zoe", "staff", "new", "root")
    assert facts(service, "c")[0] == "lea"
    after = service.get(f"{FORM}/data/a/data.xml")
    assert (after.body, after["Svc-Created"]) == (before.body, before["Svc-Created"])
    assert before.instant < after.instant
    assert change(service, query="owned-by=bob&owner=zoe")["changed"] == []


def test_one_document_gets_another_stage_or_no_owner(service: Service) -> None:
    service.save(FORM, "a", collection="draft", Username="bob")
    change(service, f"{FORM}/a", "stage=approved")
    assert facts(service, "a") == ("bob", None, "approved", "root")
    assert service.get(f"{FORM}/draft/a/data.xml").status == 404
    change(service, f"{FORM}/a", "stage=&no-owner=true")
    assert facts(service, "a") == (None, None, None, "root")


def test_a_trial_changes_nothing(service: Service) -> None:
    assert len(change(service, query="owned-by=bob&owner=zoe&dry-run=true")["changed"]) == 2
    assert facts(service, "a")[0] == "bob"


def test_a_request_changes_so_many_documents(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_routes, "MOST_CHANGED", 1)
    asked = "owned-by=bob&owner=zoe"
    assert [change(service, query=asked)["has_more"] for _ in range(3)] == [True, True, False]
    assert facts(service, "a")[0] == facts(service, "b")[0] == "zoe"


def test_the_next_request_goes_on_with_documents_that_keep_their_owner(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_routes, "MOST_CHANGED", 1)
    asked = "owned-by=bob&owner=bob&group=staff&stage=done"
    answers = [change(service, query=asked) for _ in range(3)]
    assert sorted(each["document"] for answer in answers for each in answer["changed"]) == ["a", "b"]
    assert [answer["has_more"] for answer in answers] == [True, True, False]
    with PersistenceClient(f"http://127.0.0.1:{service.port}", user="root") as client:
        assert sorted(client.form("hr", "leave", 1).change(owned_by="bob", stage="")) == ["a", "b"]
    assert facts(service, "a") == facts(service, "b") == ("bob", "staff", None, "root")


def test_a_document_that_is_deleted_meanwhile_keeps_back_no_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_facts = Documents.change_facts

    def deleted_first(documents: Documents, address: DocumentAddress, tag: str, wanted: FactsChange) -> Written:
        if address.document == "a":
            assert service.delete(f"{FORM}/data/a/data.xml").status == 204
        return change_facts(documents, address, tag, wanted)

    monkeypatch.setattr(Documents, "change_facts", deleted_first)
    answer = change(service, query="owned-by=bob&owner=zoe")
    assert [each["document"] for each in answer["changed"]] == ["b"]
    assert answer["failed"] == [{"document": "a", "cause": "hr/leave/data/a/data.xml was deleted"}]


@pytest.mark.parametrize(
    ("path", "query", "status", "cause"),
    [
        (FORM, "owned-by=bob", 400, "owner or no-owner=true, or stage, says what is changed"),
        (FORM, "owned-by=bob&owner=zoe&no-owner=true", 400, "owner or no-owner=true, or stage, says what is changed"),
        (FORM, "owner=zoe", 400, "owned-by says which documents of a form; one document has no such parameter"),
        (f"{FORM}/a", "owned-by=bob&stage=x", 400, "owned-by says which documents of a form; one document has no"),
        (FORM, "owned-by=bob&group=staff&stage=x", 400, "a group needs an owner"),
        (FORM, "owned-by=b%0Ab&stage=x", 400, "the owner before holds control characters"),
        (FORM, "owned-by=bob&owner=a%0Ab", 400, "the owner holds control characters"),
        (FORM, f"owned-by=bob&owner={'x' * 300}", 400, "the owner is longer than 255 characters"),
        (FORM, "owned-by=bob&owner=zoe&dry-run=perhaps", 400, "dry-run"),
        (FORM, "owned-by=bob&color=red", 400, "color"),
        (f"{FORM}/missing", "stage=x", 404, "hr/leave/data/missing/data.xml does not exist"),
        (f"{FORM}/a..%2Fb", "stage=x", 400, ""),
    ],
)
def test_a_request_that_cannot_be_carried_out_says_why(
    service: Service, path: str, query: str, status: int, cause: str
) -> None:
    assert change(service, path, query, status)["cause"].startswith(cause) or cause in {"dry-run", "color"}
    assert facts(service, "a") == ("bob", None, "new", "bob")


def test_a_document_that_is_deleted_is_none_of_its_owners(service: Service) -> None:
    assert service.delete(f"{FORM}/data/a/data.xml").status == 204
    assert [each["document"] for each in change(service, query="owned-by=bob&owner=zoe")["changed"]] == ["b"]
    assert change(service, f"{FORM}/a", "stage=x", 410)["cause"] != ""


def test_only_administrators_change_owners(tmp_path: Path) -> None:
    with serving(tmp_path, alone=True, settings="", env={"PERSISTENCE_LOCAL": str(tmp_path / "local")}) as service:
        assert "administrators" in change(service, query="owned-by=bob&owner=zoe", status=403)["cause"]


def test_the_client_changes_owners(service: Service) -> None:
    with PersistenceClient(f"http://127.0.0.1:{service.port}", user="root") as client:
        form = client.form("hr", "leave", 1)
        assert sorted(form.change(owned_by="bob", owner="zoe", group="staff")) == ["a", "b"]
        assert form.change("a", owner="", stage="done") == ["a"]
        assert facts(service, "a") == (None, None, "done", "root")
        with pytest.raises(NotFoundError):
            form.change("missing", stage="x")
        others = client.acting_as("other").form("hr", "leave", 1)
        with form.lease("b"), pytest.raises(ConflictError, match="0 documents are changed"):
            others.change(owned_by="zoe", stage="x")


def test_owners_that_another_service_keeps_are_changed_there(tmp_path: Path) -> None:
    far = '"svc.persistence.provider.hr.*.*" = "far"\n"svc.persistence.far.uri" = "http://127.0.0.1:9"\n'
    settings = f'administrators = ["trusted"]\n{far}'
    with serving(
        tmp_path, alone=True, settings=settings, env={"PERSISTENCE_LOCAL": str(tmp_path / "local")}
    ) as service:
        for path, query in ((FORM, "owned-by=bob&owner=zoe"), (f"{FORM}/a", "no-owner=true")):
            assert "no owner is changed" in change(service, path, query, 501)["cause"]
