"""Stories for tests: requests about a form, line by line, and what is answered.

    PUT data/D draft/D by=lea v=1 <d>1</d> -> 201 204 Operations=`create read`
    GET|HEAD data/D If-None-Match={tag} -> 304
    DELETE data/none -> 404 `does not exist`

Paths are below the form, or from ``/`` on; ``data/D`` and ``form`` stand for their XML. Headers follow as
``name=value``, the service's own without their prefix (``Modified`` is the standard ``Last-Modified``), and a body
that begins with ``<``. Behind the arrow there is one status for all paths or one for each (``deleted`` is the
dialect's), then headers (``name=`` is a missing one), the body or how many ``lines`` it has, and what is in the line of
an error. ``name>word`` takes a header down, for which ``{word}`` stands from then on, and ``name!value`` is another one
than the value. Without a status the request must succeed. ``PERMISSIONS`` publishes the form with some, or ``none``.

    RESTORE D?as-of={first} by=eve -> 204
    HISTORY D -> 200 times=`{third} {second} {first}`
    LOCK data/D for=bob by=lea -> 423 holder=lea/staff
    PUT data/D by=bob -> 423 leased=lea/D

``RESTORE`` brings a revision back and ``HISTORY`` lists them. ``LOCK`` and ``UNLOCK`` are ``for`` lea of the group
staff unless the line says otherwise. ``SEARCH`` searches the form, or another one that it names, and ``found`` has the
documents. Paths from ``~/`` on are below the API, and from ``//`` on the server's. ``FACE provider`` and ``FACE
public`` choose the API, and ``FORM`` another form. ``has`` and ``lacks`` are texts of a body. ``NOTHING`` says that
files are not in the tree.

    SEARCH v=all by=bob <search/> -> found=`D D°`
    GET ~/form/{form} //healthz -> 200
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests import orders
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, Answer, Service

Verb = Callable[..., str]

_WORD = re.compile(r"(?:[^\s`]|`[^`]*`)+")
_NAMED = re.compile(r"([A-Za-z][\w-]*)([=>!])(.*)", re.DOTALL)
_SHORT = {"v": "Form-Definition-Version", "by": "Username", "role": "Roles", "stage": "Workflow-Stage"}
_STANDARD = {"ETag", "Range", "Retry-After", "Timeout", "Accept-Ranges", "for", "in"}
_STANDARD_FAMILIES = ("If-", "Content-", "Repr-", "Orbeon-", "Svc-")
_BODY = {"PUT": b"<d/>", "SEARCH": b"<search/>"}
_ROW = r'<document [^>]*\bmodified-time="([^"]*)"'


def stories(told: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("story", told.values(), ids=told)


def play(
    service: Service,
    form: str,
    story: str,
    define: Callable[[str], bytes] = definition,
    verbs: Mapping[str, Verb] | None = None,
    **words: str,
) -> dict[str, str]:
    """Send the requests of a story one by one, and compare the answers; ``words`` are known from the beginning.

    ``define`` makes the definitions of ``PERMISSIONS``. ``verbs`` are further methods: each gets the service, the form,
    the headers and the paths, and returns what is expected behind the arrow. Returns the words known at the end.
    """
    app, name = form.split("/")
    known = {"app": app, "name": name, "form": form, "builder": f"{service.designer}/builder"} | words

    def filled(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], found[0]), text)

    for line in filter(None, map(str.strip, story.splitlines())):
        asked, arrow, expected = line.partition(" -> ")
        method, *words_of = map(filled, _WORD.findall(asked))
        wanted = list(map(filled, _WORD.findall(expected if arrow else "")))
        headers = _headers(service, words_of)
        paths = [word for word in words_of if not word.startswith("<") and not _NAMED.fullmatch(word)]
        if method == "FACE":
            service = replace(service, face={"provider": PROVIDER, "public": PUBLIC}[words_of[0]])
        elif method == "FORM":
            form = words_of[0]
        elif method == "PERMISSIONS":
            rules = "".join(asked.partition("<")[1:])
            is_said = words_of[-1:] != ["none"]
            service.publish(form, define(f"<permissions>{rules}</permissions>" if is_said else ""), headers=headers)
        elif method in (verbs or {}):
            assert verbs[method](service, form, headers, *paths) == " ".join(wanted).strip("`"), line
        elif method == "NOTHING":
            assert [path for path in paths if (service.data / form / path).exists()] == [], line
        else:
            body = next((word.replace("`", "").encode() for word in words_of if word.startswith("<")), None)
            paths = [f"~/search/{path or form}" for path in paths or [""]] if method == "SEARCH" else paths
            answers = [_ask(service, each, form, path, body, headers) for each in method.split("|") for path in paths]
            _require(service, answers, wanted, known, line)
    return known


def _require(service: Service, answers: list[Answer], wanted: list[str], known: dict[str, str], line: str) -> None:
    """Compare the answers of a line with what it wants, and take down what it names."""
    statuses = [word for word in wanted if word.isdigit() or word == "deleted"]
    assert answers, line
    for number, answer in enumerate(answers):
        said = f"{line}: {answer.status} {answer.body[:200]!r}"
        status = statuses[number if len(statuses) > 1 else 0] if statuses else ""
        if status:
            assert answer.status == (service.deleted if status == "deleted" else int(status)), said
        else:
            assert answer.status < 300, said
        for word in wanted:
            _compare(service, answer, word, known, said)


def _ask(service: Service, method: str, form: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
    body = _BODY.get(method) if body is None else body
    if path.startswith(("~/", "//")):
        url = path[1:] if path.startswith("//") else f"{service.face}/{path[2:]}"
        kind = {} if body is None else {"Content-Type": "application/xml"}
        return service.raw("POST" if method == "SEARCH" else method, url, kind | headers, body)
    headers = dict(headers)
    user, group = headers.pop("for", "lea"), headers.pop("in", "staff")
    match method:
        case "PUT":
            return service.put(path_of(form, path), body, headers)
        case "LOCK":
            return service.lock(path_of(form, path), user, group=group, headers=headers)
        case "UNLOCK":
            return service.unlock(path_of(form, path), user, group, headers=headers)
        case "RESTORE":
            document, mark, query = path.partition("?")
            return service.call("POST", f"history/{form}/{document}/restore{mark}{query}", None, headers)
        case "HISTORY":
            return service.call("GET", f"history/{form}/{path}", None, headers)
    return service.ask(method, path_of(form, path), None, headers)


def _headers(service: Service, words: list[str]) -> dict[str, str]:
    found = [_NAMED.fullmatch(word) for word in words if not word.startswith("<")]
    return {_header(service, each[1]): each[3].replace("`", "") for each in found if each is not None}


def _header(service: Service, name: str) -> str:
    if name == "Modified":
        return "Last-Modified"
    is_standard = name in _STANDARD or name.startswith(_STANDARD_FAMILIES)
    return name if is_standard else service.prefix + _SHORT.get(name, name.title())


def path_of(form: str, path: str) -> str:
    if path.startswith("/"):
        app, name, path = path[1:].split("/", 2)
        form = f"{app}/{name}"
    main, mark, query = path.partition("?")
    if main == "form":
        main = "form/form.xhtml"
    elif re.fullmatch(r"(data|draft)/[^/]+", main):
        main += "/data.xml"
    return f"{form}/{main}{mark}{query}"


def _compare(service: Service, answer: Answer, word: str, known: dict[str, str], said: str) -> None:
    named = _NAMED.fullmatch(word)
    if word.startswith("<"):
        assert answer.body == word.replace("`", "").encode(), said
    elif word.startswith("`"):
        assert word[1:-1] in answer.cause, said
    elif named:
        name, mark, value = named[1], named[2], named[3].replace("`", "")
        if mark == ">":
            known[value] = str(answer[_header(service, name)])
        elif mark == "!":
            assert answer[_header(service, name)] not in (None, value), (name, said)
        elif name in _OTHERS:
            assert _OTHERS[name](answer, value), (name, said)
        else:
            assert answer[_header(service, name)] == (value or None), (name, said)


_OTHERS: dict[str, Callable[[Answer, str], bool]] = {
    "lines": lambda answer, value: answer.body.count(b"\n") == int(value),
    "body": lambda answer, value: answer.body == value.encode(),
    "found": lambda answer, value: " ".join(orders.found(answer.body)) == value,
    "has": lambda answer, value: value.encode() in answer.body,
    "lacks": lambda answer, value: value.encode() not in answer.body,
    "times": lambda answer, value: re.findall(_ROW, answer.body.decode()) == value.split(),
    "holder": lambda answer, value: require_holder(answer, *value.split("/")) is None,
    "leased": lambda answer, value: _is_leased(answer, *value.split("/")),
}
"""What is compared with something else than a header."""


def _is_leased(answer: Answer, user: str, document: str) -> bool:
    cause = rf"{user} has leased the document {document} for (59\d|600) more seconds"
    left = re.fullmatch(r"Second-(59\d|600)", answer["Timeout"] or "")
    return re.fullmatch(cause, answer.cause) is not None and left is not None


def require_holder(answer: Answer, user: str, group: str = "staff") -> None:
    """Compare the body of a 423 of LOCK or UNLOCK, which says who holds the lease, and its time with 600 seconds."""
    assert (answer.status, answer["Content-Type"]) == (423, "application/xml")
    assert re.fullmatch(r"Second-(59\d|600)", answer["Timeout"] or "")
    root = ET.fromstring(answer.body)  # noqa: S314 - our own
    names = {each.tag: each.text for each in root.iter() if (each.text or "").strip()}
    runner = "{http://orbeon.org/oxf/xml/form-runner}"
    assert root.tag == "{DAV:}lockinfo"
    assert names == {f"{runner}username": user, f"{runner}groupname": group}
