"""The state in which the examples of a page begin: a form for leave requests and its documents, of which all speak."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.sandbox import Sandbox
from tests.service import Answer, Service

_LEAVE = Path(__file__).with_name("leave.xhtml").read_text()
_TITLE = '<title xml:lang="en">Leave request</title>'
_PERMISSIONS = (
    '<permissions><permission operations="create -list"/>'
    '<permission operations="read update -list"><owner/></permission>'
    '<permission operations="read delete list"><user-role any-of="hr-admin payroll%20clerk"/></permission>'
    "</permissions>"
)
_DOCUMENT = "hr/leave/data/1b4e28ba"
_SCAN = f"/fr/service/persistence/crud/{_DOCUMENT}/0cc175b9.png"

Prepare = Callable[[Service, Sandbox], None]


def _nothing(service: Service, sandbox: Sandbox) -> None:
    del service, sandbox


@dataclass(frozen=True, slots=True)
class Stage:
    """The settings and the dialect of the service, the environment of the shell, and what is done before.

    ``fresh``: /var/lib/persistence is empty, and the service has its settings and its data elsewhere.
    """

    prepare: Prepare = _nothing
    settings: str = ""
    dialect: str = "svc"
    environment: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False


def _form(name: str, metadata: str) -> bytes:
    return _LEAVE.replace("NAME", name).replace("METADATA", metadata).encode()


def _data(reason: str, *days: str) -> bytes:
    repeated = "".join(f"<days><day>{day}</day></days>" for day in days)
    return (
        f"<form><person><name>Lea Example</name><reason>{reason}</reason>{repeated}<scan>{_SCAN}</scan></person></form>"
    ).encode()


def leave_requests(service: Service, sandbox: Sandbox) -> None:
    """Publish hr/leave twice and hr/sick-note once; save a document of the first, with all there may be of one."""
    del sandbox
    forms = (
        ("leave", "1", _TITLE),
        ("leave", "2", f'{_TITLE}<title xml:lang="de">Urlaubsantrag</title>{_PERMISSIONS}'),
        ("sick-note", "1", '<title xml:lang="en">Sick note</title><available>false</available>'),
    )
    for name, version, metadata in forms:
        body = _form(name, metadata)
        _stored(service.put(f"hr/{name}/form/form.xhtml", body, Form_Definition_Version=version, Username="mia"))
    lea = {"Form_Definition_Version": "2", "Username": "lea", "Group": "staff"}
    for file, size in (("0cc175b9.png", 48211), ("9d5ed678.png", 17)):
        _stored(service.put(f"{_DOCUMENT}/{file}", b"\x89" * size, {"Content-Type": "image/png"}, **lea))
    for stage, body in (("started", _data("Holiday", "Friday")), ("sent", _data("Back pain", "Friday", "Monday"))):
        _stored(service.put(f"{_DOCUMENT}/data.xml?valid=true", body, Workflow_Stage=stage, **lea))
    _stored(service.put("hr/leave/draft/1b4e28ba/data.xml", _data("Back pain, sick"), **lea))
    _stored(service.put("hr/leave/data/2c5ea4c0/data.xml", _data("Holiday"), **lea))
    administrator = {"Username": "ada", "Roles": "hr-admin", "Form_Definition_Version": "2"}
    assert service.delete("hr/leave/data/2c5ea4c0/data.xml", **administrator).status == 204
    _stored(service.put("svc/builder/data/5e6f/data.xml", _form("leave", _TITLE), Username="mia"))


def _edited(service: Service, sandbox: Sandbox) -> None:
    leave_requests(service, sandbox)
    file = service.data / _DOCUMENT / "data.xml"
    file.write_text(file.read_text().replace("Back pain", "Toothache"))


def _with_key(service: Service, sandbox: Sandbox) -> None:
    """Make a key of an administrator; it is the environment's ``KEY``."""
    leave_requests(service, sandbox)
    sandbox.script("KEY=$(persistence api-key new ops | grep -o '[0-9a-f]\\{64\\}')", "the key of the administrator")


def _with_date(service: Service, sandbox: Sandbox) -> None:
    """Publish the form again, with a control of the first day."""
    leave_requests(service, sandbox)
    bind, control = '<xf:bind id="scan-bind"', '<fr:c><fr:attachment id="scan-control"'
    body = _form("leave", f"{_TITLE}{_PERMISSIONS}").decode()
    body = body.replace(bind, f'<xf:bind id="first-bind" ref="first" type="xf:date"/>{bind}')
    body = body.replace(
        control, f'<fr:c><fr:date id="first-control" bind="first-bind"><fr:index/></fr:date></fr:c>{control}'
    )
    _stored(service.put("hr/leave/form/form.xhtml", body.encode(), Form_Definition_Version="2", Username="mia"))


def _stored(answer: Answer) -> None:
    assert answer.status in {201, 204}, answer.body


STAGES: Mapping[str, Stage] = {
    "definitions.md": Stage(),
    "permissions.md": Stage(leave_requests, '"svc.access-token.validity.hr.leave" = 14400\n'),
    "tour.md": Stage(),
    "hand-edits.md": Stage(_edited),
    "export.md": Stage(_with_key, 'administrators = ["ops"]\n'),
    "running.md": Stage(fresh=True),
    "searching.md": Stage(_with_date),
    "providers.md": Stage(
        settings='"svc.persistence.provider.*.*.data" = "disk2"\n"svc.persistence.disk2.datasource" = "second"\n'
        '[datasource.second]\ndata = "{mnt}/second/forms"\n'
    ),
}
"""The pages that do not begin with ``leave_requests`` and the default settings."""

USUAL = Stage(leave_requests)
