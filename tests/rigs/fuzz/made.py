"""Requests that schemathesis makes from the documented interface, as it says and not as it says; and odd ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import schemathesis
import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from requests import Request as Unprepared
from schemathesis import Case, GenerationMode

from persistence.model.versions import DATA_FORMATS
from tests.published import definition
from tests.rigs.fuzz import interface
from tests.rigs.fuzz.documents import definitions, documents
from tests.rigs.fuzz.interface import Operation, faces, text_of
from tests.rigs.fuzz.judge import Request

_BASE = "http://127.0.0.1"
_USUAL = {
    "app": ("hr", "hr", "Ä"),
    "form": ("leave", "builder"),
    "document": ("1b4e28ba", "ü"),
    "attachment": ("0cc175b9.bin", "e\u0301.json"),
    "Form-Definition-Version": ("1", "1", "2"),
    "If-None-Match": ("*", '"x"'),
    "If-Match": ("*",),
    "Range": ("bytes=0-0", "bytes=1-"),
    "Username": ("lea", "bob"),
    "Group": ("clerks",),
    "Roles": ("clerk", "payroll clerk,admin"),
    "Credentials": (
        '{"username": "lea", "groups": ["clerks"], "roles": [{"name": "admin"}]}',
        '{"username": "bob"}',
        "{}",
    ),
    "data-format-version": ("4.0.0", "raw"),
    "last-modified-time": ("",),
    "form-definition-format-version": DATA_FORMATS,
    "form-definition-version": ("1", "next"),
}
"""Values that come again and again: else nothing that is asked for would ever be there, or as expected."""

_ORDER = ("put", "post", "get", "head", "delete")

QUERIES = (
    *(b"<d/>", b"<search/>"),
    b"<search><filter metadata='form-version' match='exact'>latest</filter></search>",
    b"<search return-all-indexed-fields='true'><query path='a[1]' sort='asc'>x</query><drafts>only</drafts></search>",
    b"<search><query metadata='created' match='gte'>2024-05-01</query><page-number>999999999999</page-number></search>",
    b"<distinct-values><query path='a'/><query metadata='created-by'/></distinct-values>",
)
"""Bodies of which the first is a document, and the others are queries."""

_bodies = st.binary(max_size=300)


def described(dialect: str) -> Iterator[tuple[int, SearchStrategy[tuple[Request, ...]]]]:
    """For each operation and mode a strategy of requests, the same one below each prefix, and how many these are.

    What stores comes first, and what deletes last.
    """
    schemathesis.openapi.media_type("application/xml", documents() | definitions | st.sampled_from(QUERIES))
    schemathesis.openapi.media_type("application/xhtml+xml", documents() | definitions)
    for kind in ("*/*", "application/octet-stream", "application/zip", "application/jsonl"):
        schemathesis.openapi.media_type(kind, _bodies)
    schema = schemathesis.openapi.from_dict(yaml.safe_load(text_of(dialect)))
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in sorted(operations, key=lambda each: _ORDER.index(each.method)):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            below = faces(schema.raw_schema, schema.raw_schema["paths"][operation.path])
            made = operation.as_strategy(generation_mode=mode)
            yield len(below), st.builds(_requests, made, _usual(dialect), st.just(below))


def _usual(dialect: str) -> SearchStrategy[dict[str, str]]:
    """Usual values for all or some of the parameters; one app is the designer's, which is called as the dialect."""
    usual = {name: st.sampled_from(values) for name, values in _USUAL.items()}
    usual["app"] |= st.just(dialect)
    return st.fixed_dictionaries(usual) | st.fixed_dictionaries({}, optional=usual)


def _requests(case: Case, usual: dict[str, str], below: list[str]) -> tuple[Request, ...]:
    for name in case.path_parameters.keys() & usual.keys():
        case.path_parameters[name] = quote(usual[name])
    for name in case.query.keys() & usual.keys():
        case.query[name] = usual[name]
    for name in list(case.headers):
        plain = name.removeprefix("Svc-").removeprefix("Orbeon-")
        if plain in usual:
            case.headers[name] = usual[plain]
    return tuple(_request(case, face) for face in below)


def _request(case: Case, face: str) -> Request:
    kept = ("method", "url", "headers", "params", "data", "json", "files")
    arguments = case.as_transport_kwargs(base_url=_BASE + face)
    ready = Unprepared(**{name: value for name, value in arguments.items() if name in kept}).prepare()
    body = ready.body.encode() if isinstance(ready.body, str) else ready.body
    headers = tuple(
        (_bytes(name), _bytes(value)) for name, value in ready.headers.items() if name.lower() != "content-length"
    )
    return Request(_bytes(ready.method or ""), ready.path_url.encode(), headers, body)


def _bytes(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


# Requests that no client library would send: bytes in paths, names and values, in every length and framing. Each is a
# documented request with an oddity or two, so that it gets past the first check.

_NAMES = {"app": "odd", "form": "form", "document": "D", "attachment": "a.bin"}
_DEFINITION = definition(
    "<application-name>odd</application-name><form-name>form</form-name>"
    '<permissions><permission operations="create read update delete"/></permissions>'
)

_SEGMENTS = (
    *b". .. ... %2e %2E%2e .%2e %252e%252e %c0%ae%c0%ae ..; ..%00 %2e%2e%2f %2f".split(),
    *b"%2F..%2F %5c ..%5c.. \\ %00 a%00.bin".split(),
    *b"%0a %0d%0aX:y %1b %7f %20 % %2 %zz %u002e %ff \xff \xc3\xa9 \xe9 %C3%A9 e%CC%81 %ED%A0%80 %F0%9F%98%80".split(),
    *b"%E2%80%AE %E2%80%8B %EF%BC%8F %E2%81%84 %EF%BC%8E%EF%BC%8E %EF%BB%BF %C2%85 %F4%90%80%80 %E2%80%A8".split(),
    *b"%EF%BF%BE a. a%20 CON aux.bin a:b a*?<>| a.json .json a.b.json a.JSON data.xml.json form.xhtml.json".split(),
    *b"DATA.XML data.xml%20 data.xml. .history .data.xml.json .locks .spool .trash .serve .index .quarantine".split(),
    *b"layout.json data draft form 1 data.xml;x=1 a+b a&b=c ~ -rf $(id)".split(),
    *b"{{7*7}} '%20or%20''=' %3Cscript%3E // #f *".split(),
    *(b"x" * 200, b"x" * 201, b"x" * 255, b"x" * 256, b"%C3%A9" * 127, b"%C3%A9" * 128, b"%25" * 66, b"%25" * 67),
    *(b"%3A" * 85, b"%3A" * 86, b"%20" * 200, b".data.xml." + b"0" * 40, b""),
)
_QUERIES = (
    *b"valid=true valid=maybe valid= valid valid=true&valid=false valid=%74rue".split(),
    *b"valid=%00 valid[]=true ;valid=true".split(),
    *b"nonrelevant=remove nonrelevant=empty nonrelevant=\xff data-format-version=4.0.0 data-format-version=raw".split(),
    *b"data-format-version=%EF%BC%94.0.0 form-definition-format-version=4.8.0".split(),
    *b"form-definition-format-version=x%0Ay".split(),
    *b"last-modified-time=2025-03-04T05:06:07.089Z last-modified-time=%D9%A2025-03-04 last-modified-time=now".split(),
    *b"last-modified-time=2025-W01-1T00:00:00Z last-modified-time=0001-01-01T00:00:00%2B23:59".split(),
    *b"force-delete=true force-delete=1 document=%0d%0aX:y document=%ED%A0%80 document=%FF document=%E2%80%AE".split(),
    *b"&&&& = % %=% ? __proto__=1".split(),
    *b"document=D document= document=%2e%2e%2f document=D&document=E document-id=%0a available=no".split(),
    *b"version-comment=%00 version-comment=%EF%BF%BF version-comment=%0A%3Cx/%3E version-comment=%ED%A0%80".split(),
    *b"form-definition-version=next form-definition-version=%D9%A1 form-definition-version=0 available=false".split(),
    *b"remote-server-url=http://127.0.0.1:9 remote-server-url= username=x&password=y upgrade-form-definition=x".split(),
    *b"form-definition-format-version=4.0.0 form-definition-format-version=2019.1.0 all-versions=maybe".split(),
    *b"all-forms=TRUE modified-since=%00 modified-since=2024-02-30 modified-since=99999-01-01T00:00:00%2B14:00".split(),
    b"version-comment=" + b"x" * 5000,
    *(b"document=" + b"x" * 255, b"document=" + b"x" * 256, b"a" * 6000, b"a&" * 2000, b"x=%" * 500),
    b"last-modified-time=" + b"9" * 5000,
)
_OWN = (
    *b"Form-Definition-Version For-Document-Id For-Document-IsDraft Username Group Roles Credentials".split(),
    *b"Workflow-Stage Hash-Algorithm Hash-Value".split(),
)
_STANDARD = (
    *b"If-Match If-None-Match If-Modified-Since If-Unmodified-Since If-Range Range Content-Type X-Request-Id".split(),
    *b"Content-Encoding Accept Cookie Authorization X-Forwarded-For X-Forwarded-Proto Forwarded Origin".split(),
    *b"Content-Range Content-Digest Repr-Digest Content-MD5".split(),
    *b"X-Accel-Redirect X-HTTP-Method-Override Accept-Encoding Referer User-Agent".split(),
)
_FRAMING = {
    b"Transfer-Encoding": (b"chunked", b"identity", b"gzip, chunked", b"\x0bchunked", b"CHUNKED"),
    b"Content-Length": (b"0", b"+4", b"4, 4", b"-1", b"0x4", b"9" * 30, b"4 ", b"\xb2"),
    b"Expect": (b"100-continue", b"x"),
    b"Host": (b"", b"a b", b"\xff"),
    b"Upgrade": (b"h2c",),
    b"Connection": (b"X",),
    b"TE": (b"trailers",),
    b"Trailer": (b"Svc-Username",),
    b"A": (b"x\r\n folded", b"x\ny: z"),
    **dict.fromkeys((b"Script-Name", b"SCRIPT_NAME", b"PATH_INFO"), (b"/crud",)),
    **dict.fromkeys((b"Svc_Username", b"", b" A", b"A b", b"A:", b"\xe9", b"A\x00", b"Range "), (b"x",)),
}
"""Headers by which a server tells where a request ends, and where it goes; and names that are none."""

_VALUES = (
    *b"1 0 01 -1 +1 1.0 999999999 1000000000 next NEXT 1,2 * true false".split(),
    *b"True lea now text/html text / gzip chunked".split(),
    *b'"*" W/"x" " "a","b" identity ${jndi:ldap://x} a,b|c,| multipart/form-data;boundary='.split(),
    *b"\xd9\xa1 \xc2\xb2 \xc3\xa9 \xe9 \xff\xfe \xc3 \xf0\x9f\x98\x80 \xed\xa0\x80 \xe2\x80\xa8 \xe2\x80\xae".split(),
    *b"bytes=0-0 bytes=0- bytes=-5 bytes=5-2 bytes=99999999999999999999- bytes=0-1,2-3".split(),
    *b"items=0-1 bytes=\xd9\xa1- bytes".split(),
    *(b"", b" ", b"\t", b"\x00", b"\x01", b"\x7f", b"a\x0bb", b"\xc2\x85", b"IDENTITY ", b"9" * 400, b"," * 500),
    *(b"x" * 255, b"x" * 256, b"x" * 8000, b"x" * 9000, b"x" * 20000, b"\xc3\xa9" * 255, b"a/b;" + b"x" * 300),
    *(b"bytes=0-" + b"9" * 200, b"bytes=0-1" + b",0-1" * 1000, b"text/html; charset=\xff"),
    *(b"Tue, 04 Mar 2025 05:06:07 GMT", b"Tue, 99 Mar 2025 05:06:07 GMT"),
)
_CREDENTIALS = (
    b'{"username": "lea"}',
    *b'{} [] null 1 {"username":null} {"username":""} {"username":"\\ud800"} {"username":"\\u0000"}'.split(),
    *b'{"username":"a\\nb"} {"username":"%0a"} {"username":"%ff"} {"username":"+"} \xef\xbb\xbf{}'.split(),
    *b'{"username":"a","username":"b"} {"username":"a","groups":["g",1]} {"username":"a","groups":[""]}'.split(),
    *b'{"username":"a","organizations":[["x","y"]]} {"username":"a","organizations":[["\xc3\xa9"],[]]}'.split(),
    *b'{"username":"a","organizations":[[]]} {"username":"a","z":1e999} {"username":"a","z":NaN}'.split(),
    b'{"username": "a", "organizations": [[' + b",".join((b'"x"',) * 32) + b"]]}",
    b'{"username": "a", "organizations": [[' + b",".join((b'"' + b"y" * 200 + b'"',) * 32) + b"]]}",
    b'{"username": "a", "roles": [{"name": "r", "organization": "%e9"}]}',
    b'{"username": "' + b"x" * 256 + b'"}',
    b'{"username": "a", "z": ' + b"9" * 5000 + b"}",
    b'{"username": "a"} x',
    b"{" * 4000,
    b"[" * 7000,
)
_WITH_BODY = (b"PUT", b"POST")
_OTHER_METHODS = tuple(b"OPTIONS POST PUT DELETE TRACE PATCH PROPFIND LOCK QUERY".split())
_ODD_METHODS = (b"get", b"G", b"X" * 30, b"CONNECT", b"PUT\x00", b"P UT", b"\xc3\xa9", b"")
_VERSIONS = (*b"HTTP/1.0 HTTP/0.9 HTTP/2.0 HTTP/1.2 HTTP/1.11 http/1.1 HTTPS/1.1".split(), b"", b"HTTP/1.1 x")
_BODIES = (
    *(b"<d/>", b"", b"<d>", b"\x00", b"4\r\n<d/>\r\n0\r\n\r\n", b"zz\r\n"),
    *(b"x" * 70000, b"<d>" + b"y" * 300000 + b"</d>"),
    *(_DEFINITION, *QUERIES),
)
_CHUNKED = (
    b"4\r\n<d/>\r\n0\r\n\r\n",
    b"4;x=y\r\n<d/>\r\n0\r\n\r\n",
    b"4\r\n<d/>\r\n0\r\nSvc-Username: x\r\n\r\n",
    b"1\r\n<\r\n3\r\nd/>\r\n0\r\n\r\n",
    b"-4\r\n<d/>\r\n0\r\n\r\n",
    b"4\n<d/>\n0\n\n",
    b"4\r\n<d/>",
    b"0x4\r\n<d/>\r\n0\r\n\r\n",
    b"FFFFFFFFFFFFFFFFF\r\n<d/>",
    b"5\r\n<d/>\r\n0\r\n\r\n",
)

Fields = tuple[tuple[bytes, bytes], ...]

_odd_segments = st.sampled_from(_SEGMENTS) | st.binary(min_size=1, max_size=12).map(
    lambda raw: b"%" + raw.hex("%").encode()
)
_raw_bytes = st.binary(min_size=1, max_size=30).map(lambda raw: raw.translate(None, b"\r\n \x00"))
_odd_values = st.sampled_from(_VALUES) | _raw_bytes
_odd_credentials = st.sampled_from(_CREDENTIALS) | st.binary(max_size=40).map(lambda raw: raw.translate(None, b"\r\n"))
_some_queries = st.lists(st.sampled_from(_QUERIES), max_size=2).map(b"&".join)


def _cased(names: tuple[bytes, ...]) -> SearchStrategy[bytes]:
    """A header's name as it is, or in another mixture of cases."""
    return st.builds(
        lambda name, how: how(name),
        st.sampled_from(names),
        st.sampled_from((bytes, bytes, bytes.lower, bytes.upper, bytes.swapcase)),
    )


@st.composite
def _targets(draw: st.DrawFn, target: bytes) -> bytes:
    """A target with another name in its path, and perhaps more that is odd about the path."""
    path, mark, query = target.partition(b"?")
    names = path.split(b"/")
    names[-draw(st.integers(1, max(1, min(6, len(names) - 1))))] = draw(_odd_segments | _raw_bytes)
    changed = b"/".join(names)
    odd = (
        changed.replace(b"/", b"//", draw(st.integers(1, 4))),
        changed + b"/",
        b"http://other.example" + changed,
        changed.removeprefix(b"/"),
        b"/./" + changed,
        changed + b"/" + b"x/" * 500,
        changed + b"x" * 9000,
        b"*",
    )
    return draw(st.sampled_from((changed,) * 8 + odd)) + mark + query


@st.composite
def _headers(draw: st.DrawFn, prefix: bytes) -> Fields:
    own = tuple(prefix + name for name in _OWN)
    kind = draw(st.sampled_from(("values", "values", "credentials", "many", "framing")))
    if kind == "values":
        return tuple(draw(st.lists(st.tuples(_cased((*own, *_STANDARD)), _odd_values), min_size=1, max_size=3)))
    if kind == "credentials":
        return ((prefix + b"Credentials", draw(_odd_credentials)),)
    if kind == "many":
        name, value = draw(_cased((*own, *_STANDARD, b"X-Any"))), draw(st.sampled_from((b"", b"1", b"x" * 300)))
        return ((name, value),) * draw(st.sampled_from((2, 3, 50, 90, 99, 150, 500)))
    name = draw(st.sampled_from(sorted(_FRAMING)))
    return ((name, draw(st.sampled_from(_FRAMING[name]))),)


def odd(dialect: str, prefix: bytes) -> SearchStrategy[Request]:
    """Documented requests, most of them for resources, with an oddity or two.

    ``prefix`` is what the service's own headers begin with.
    """
    operations = [(own.method.encode(), _target(own)) for own in interface.read(dialect).operations]
    resources = [(method, target) for method, target in operations if b"/crud/" in target]
    writes = [(method, target) for method, target in resources if method == b"PUT"]
    meant = st.one_of(*map(st.sampled_from, (resources, resources, writes, operations)))

    @st.composite
    def one(draw: st.DrawFn) -> Request:
        method, target = draw(meant)
        if draw(st.integers(0, 9)) == 5:
            method = draw(st.sampled_from(_OTHER_METHODS))
        body = draw(st.sampled_from(_BODIES)) if method in _WITH_BODY else None
        request = Request(method, target, ((prefix + b"Form-Definition-Version", b"1"),), body)
        for _ in range(draw(st.integers(1, 2))):
            request = draw(_with_oddity(request, prefix))
        return request

    return one()


def _target(operation: Operation) -> bytes:
    path = re.sub(r"{(\w+)}", lambda name: _NAMES[name[1]], operation.face + operation.path)
    is_list = operation.path.endswith("/attachments")
    return f"{path}?document=D".encode() if is_list else path.encode()


@st.composite
def _with_oddity(draw: st.DrawFn, request: Request, prefix: bytes) -> Request:
    where = draw(st.sampled_from(("path", "path", "query", "header", "header", "header", "body", "line")))
    if where == "path":
        return replace(request, target=draw(_targets(request.target)))
    if where == "query":
        return replace(request, target=request.target.partition(b"?")[0] + b"?" + draw(_some_queries))
    if where == "header":
        kept = request.headers if draw(st.booleans()) else ()
        return replace(request, headers=(*kept, *draw(_headers(prefix))))
    if where == "body" and request.method in _WITH_BODY:
        coding = (*request.headers, (b"Transfer-Encoding", b"chunked"))
        return replace(request, headers=coding, body=draw(st.sampled_from(_CHUNKED)))
    if where == "line" and draw(st.integers(0, 2)) == 0:
        if draw(st.booleans()):
            return replace(request, method=draw(st.sampled_from(_ODD_METHODS)))
        return replace(request, version=draw(st.sampled_from(_VERSIONS)))
    return request
