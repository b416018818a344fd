"""Every kind of request of the interface, drawn with numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from tests.encrypted_form import DEFINITION as SEALED
from tests.encrypted_form import UNMARKED
from tests.published import PERMISSIONS, definition
from tests.service import PUBLIC, Answer, Service

# Numbers that a request is drawn with, and how a better one is made of a good one.

LARGEST = 10 << 20
_POWERS = {"size": (8, 23.3), "length": (0, 14), "other": (0, 14)}
"""The numbers that are small as often as large: powers of two between which they lie."""


@dataclass(frozen=True)
class Genes:
    """What each number means is a kind's own affair; ``size`` is of the body, in bytes."""

    shape: int
    size: int
    length: int
    other: int
    character: int
    choice: int

    @classmethod
    def drawn(cls, random: random.Random) -> Genes:
        large = {name: int(2 ** random.uniform(*_POWERS[name])) for name in _POWERS}
        return cls(**large, **{name: random.randrange(1_000) for name in ("shape", "character", "choice")})

    def mutated(self, random: random.Random) -> Genes:
        changed, fresh = {}, vars(Genes.drawn(random))
        for name in random.sample(sorted(fresh), random.choice((1, 1, 2))):
            changed[name] = fresh[name]
            if name in _POWERS and random.random() < 0.6:
                changed[name] = int(vars(self)[name] * 2 ** random.uniform(-1.5, 1.5)) + random.randrange(3)
        mutated = replace(self, **changed)
        return replace(mutated, size=max(1, min(mutated.size, LARGEST)))


XML = {"Content-Type": "application/xml", "Svc-Username": "ann", "Svc-Form-Definition-Version": "1"}
# What the service has before requests are tried: forms and documents such as an attacker would lay down.

_CRUD = f"{PUBLIC}/crud/cost"
_ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-16", "iso-8859-1")
_HEADER = 15_000
_PATHS = ("person/name", "person/name", "person/name", "name")
_MATCHES = ("substring", "token", "exact")


@dataclass(frozen=True)
class Sent:
    """A request; ``first`` are those that lay down what it is about, and are not counted."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    first: tuple[Sent, ...] = ()
    stored: int = 0
    """Bytes of what the request is about, where it has no body of its own."""

    @property
    def megabytes(self) -> float:
        """What is promised for: less counts as one."""
        return max(1.0, max(len(self.body or b""), self.stored) / (1 << 20))

    def go(self, service: Service) -> Answer:
        return service.raw(self.method, self.path, self.headers, self.body)


def _document(genes: Genes) -> bytes:
    """Form data, every other time with its content where a form has controls: it is indexed there, or encrypted."""
    encoding = _ENCODINGS[genes.choice % len(_ENCODINGS)]
    inside = content(genes, genes.size)
    inside = f"<person>{inside}</person>" if genes.choice // 32 % 2 else inside
    text = f'<?xml version="1.0" encoding="{encoding}"?><form>{inside}</form>'
    return text.encode(encoding, "xmlcharrefreplace")[: 10 << 20] if encoding != "utf-16" else text.encode(encoding)


def _definition(genes: Genes) -> bytes:
    room = min(genes.size, 8 << 20)
    match genes.choice % 8:
        case 0:
            return definition(f"<title>{content(genes, room)}</title>")
        case 1:
            title = CHARACTERS[genes.character % len(CHARACTERS)] * (genes.length % 16_000)
            languages = range(max(1, room // (len(title.encode()) + 40)))
            return definition("".join(f'<title xml:lang="l{each}">{title}</title>' for each in languages))
        case 2:
            role = '<permission operations="read"><user-role any-of="r{}"/></permission>'
            return definition(f"<permissions>{''.join(role.format(each) for each in range(room // 70))}</permissions>")
        case 3:
            return SEALED.replace(b"</xh:body>", f"<x>{content(genes, room)}</x></xh:body>".encode(errors="replace"))
        case 4:
            depth, inside = genes.other % 150 + 1, "<a id='x'/>" * (room // 11)
            return _with_head(
                f"{'<xbl:binding><xbl:template>' * depth}{inside}{'</xbl:template></xbl:binding>' * depth}"
            )
        case 5:
            depth = genes.other % 100 + 1
            binds = "<xf:bind id='a-bind' ref='a'>" * depth + "</xf:bind>" * depth
            return SEALED.replace(b"<xf:bind", (binds * max(1, room // len(binds))).encode() + b"<xf:bind", 1)
        case 6:
            cell = '<fr:c><xf:input id="c{}-control" bind="c{}-bind"><fr:index/></xf:input></fr:c>'
            cells = "".join(cell.format(each, each) for each in range(room // 140))
            binds = "".join(f'<xf:bind id="c{each}-bind" ref="c{each}"/>' for each in range(room // 140))
            return SEALED.replace(b"</fr:grid>", f"{cells}</fr:grid>".encode(), 1).replace(
                b'<xf:bind id="name-bind"', f'{binds}<xf:bind id="name-bind"'.encode(), 1
            )
        case _:
            return SEALED.replace(b"<xh:head>", f"<xh:head><y>{content(genes, room)}</y>".encode(errors="replace"), 1)


def _with_head(inside: str) -> bytes:
    declared = b'<xh:head xmlns:xbl="http://www.w3.org/ns/xbl"><xbl:xbl>%b</xbl:xbl>' % inside.encode()
    return SEALED.replace(b"<xh:head>", declared, 1)


def _form(genes: Genes) -> str:
    return ("open", "sealed")[genes.choice // 8 % 2]


def put_data(genes: Genes) -> Sent:
    collection = ("data", "draft")[genes.choice // 16 % 2]
    return Sent("PUT", f"{_CRUD}/{_form(genes)}/{collection}/d/data.xml", _document(genes), XML)


def _after(first: Sent, path: str, method: str = "GET", body: bytes | None = None) -> Sent:
    """A request about what another one has stored."""
    return Sent(method, path, body, XML, (first,), len(first.body or b""))


def get_data(genes: Genes) -> Sent:
    put = put_data(genes)
    formats = ("", "?data-format-version=2019.1.0", "?data-format-version=4.8.0", "?nonrelevant=remove")
    return _after(put, put.path + formats[genes.other % len(formats)])


def provider_data(genes: Genes) -> Sent:
    """What the provider API keeps as it is, and the public API shows.

    Values that only look encrypted are damage, and answered 500; ``get_data`` reads those that the service encrypted.
    """
    path = "/crud/cost/sealed/data/p/data.xml"
    return _after(Sent("PUT", path, _document(genes), XML), f"{PUBLIC}{path}")


def put_definition(genes: Genes) -> Sent:
    return Sent("PUT", f"{_CRUD}/made/form/form.xhtml", _definition(genes), XML)


def get_definition(genes: Genes) -> Sent:
    put, wanted = put_definition(genes), ("2019.1.0", "4.8.0", "4.0.0")[genes.other % 3]
    return _after(put, f"{put.path}?form-definition-format-version={wanted}")


def data_of_made(genes: Genes) -> Sent:
    """The first document of a definition that was just published: its controls are read."""
    return _after(put_definition(genes), f"{_CRUD}/made/data/d/data.xml", "PUT", b"<form><name>x</name></form>")


def publish(genes: Genes) -> Sent:
    made = _definition(genes).removeprefix(b'<?xml version="1.0"?>')
    body = b"<publish><form-definition>%b</form-definition></publish>" % made if genes.other % 2 else made
    path = "/fr/service/publish?app=cost&form=published&available=true"
    return Sent("POST", path, body, XML)


def put_attachment(genes: Genes) -> Sent:
    holder = ("person/scan", "person/photo", "x" * (genes.length % _HEADER))[genes.other % 3]
    headers = {**XML, "Content-Type": "application/octet-stream", "Svc-Path-To-Holder": holder}
    return Sent("PUT", f"{_CRUD}/sealed/data/d/a.bin", b"\0" * min(genes.size, 10 << 20), headers)


def list_attachments(genes: Genes) -> Sent:
    first = Sent("PUT", f"{_CRUD}/open/data/d/data.xml", _document(genes), XML)
    return _after(first, "/fr/service/cost/open/attachments?document=d")


def list_forms(genes: Genes) -> Sent:
    names = ("", "/cost", "/cost/made")[genes.other % 3]
    return _after(put_definition(genes), f"{PUBLIC}/form{names}?all-versions=true&all-forms=true")


def query_forms(genes: Genes) -> Sent:
    text = CHARACTERS[genes.character % len(CHARACTERS)] * (genes.length % 4_000)
    about = ("title", "application-name", "operations", "last-modified-by")[genes.other % 4]
    match = ("substring", "exact", "token")[genes.choice % 3]
    one = f'<filter metadata="{about}" match="{match}" xml:lang="en">{text}</filter>'
    many = one * min(110, max(1, genes.size // len(one.encode())))
    inside = many if genes.choice % 4 else content(genes, min(genes.size, 1 << 20))
    return Sent("POST", f"{PUBLIC}/form", f'<search all-forms="true">{inside}</search>'.encode(), XML)


def search(genes: Genes) -> Sent:
    characters = ("a", "ab", "word ", "x y ", "é", "a b ")
    text = characters[genes.character % len(characters)] * (genes.length % 3_000) + ("", "b", "zz")[genes.other % 3]
    path = _PATHS[genes.other % len(_PATHS)] if genes.choice % 5 else "p" * (genes.length + 1)
    match genes.choice % 6:
        case 0:
            inside = f"<query>{text}</query>"
        case 1:
            inside = f'<query path="{path}"/>' * (genes.other % 201)
        case 2:
            inside = content(genes, min(genes.size, 1 << 20))
        case 3:
            inside = f'<query path="{path}" sort="desc"/><query path="{path}" match="token">{text[:200]}</query>'
        case _:
            words = " ".join(f"a{each}" for each in range(genes.length % 150))
            kind = _MATCHES[genes.choice // 6 % 3]
            said = words if kind == "token" else text
            either = ("", ' or="a"')[genes.shape // 30 % 2]
            one = f'<query path="{path}" match="{kind}"{either}>{said}</query>'
            inside = one * min(genes.other % 200 + 1, max(1, genes.size // len(one.encode())))
    size = (1, 10, 40, 1_000, 1_000_000)[genes.shape % 5]
    indexed = ' return-all-indexed-fields="true"' if genes.shape // 5 % 2 else ""
    body = f"<search{indexed}>{inside}<page-size>{size}</page-size></search>"
    form = ("large", "small", "open")[genes.shape // 10 % 3]
    return Sent("POST", f"{PUBLIC}/search/cost/{form}", body.encode(), XML)


def distinct_values(genes: Genes) -> Sent:
    path = _PATHS[genes.other % len(_PATHS)] if genes.choice % 3 else "p" * (genes.length + 1)
    one = (f'<query path="{path}"/>', '<query metadata="created-by"/>')[genes.choice // 3 % 2]
    inside = one * (genes.length % 201) if genes.choice % 7 else content(genes, min(genes.size, 1 << 20))
    form = ("large", "small", "open")[genes.shape % 3]
    return Sent("POST", f"{PUBLIC}/distinct-values/cost/{form}", f"<d>{inside}</d>".encode(), XML)


def reindex(genes: Genes) -> Sent:
    form = ("small", "open")[genes.other % 2]
    return Sent("POST", f"{PUBLIC}/reindex/cost/{form}", b"", XML, stored=2 << 20)


def headers(genes: Genes) -> Sent:
    fill = (" ", ",", "|", ", ", "a", "a,", '"', "[", "\t", "%", "1", "0-1,", '{"a":', "é".encode().decode("latin-1"))
    one = fill[genes.character % len(fill)]
    value = "a" + one * (min(genes.length, _HEADER) // len(one)) + "b"
    names = (
        *("Svc-Roles", "Svc-Username", "Svc-Group", "Svc-Workflow-Stage", "Svc-Datasource", "Svc-Path-To-Holder"),
        *("Range", "If-Match", "If-None-Match", "If-Modified-Since", "Content-Type", "Svc-Form-Definition-Version"),
        *("Svc-Hash-Value", "Svc-For-Document-Id", "X-Request-Id", "Authorization", "Cookie", "Accept", "If-Range"),
        *("Transfer-Encoding", "Content-Encoding", "Expect", "Host", "Origin", "Sec-Fetch-Site"),
    )
    sent = {**XML, names[genes.shape % len(names)]: value}
    paths = (f"{_CRUD}/large/data/d0/data.xml", f"{_CRUD}/sealed/data/d/a.bin", f"{PUBLIC}/form")
    return Sent(("GET", "HEAD", "PUT", "DELETE")[genes.choice % 4], paths[genes.other % 3], None, sent)


def credentials(genes: Genes) -> Sent:
    number = genes.length % 800 + 1
    roles = [{"name": f"r{each}", "organization": "o" * (genes.other % 20)} for each in range(number)]
    said = json.dumps(
        {"username": "ann", "groups": ["g"], "roles": roles, "organizations": [["a"] * (genes.other % 40)]}
    )
    body = b'<search><operations any-of="read update"/><page-size>1000</page-size></search>'
    return Sent("POST", f"{PUBLIC}/search/cost/guarded", body, {**XML, "Svc-Credentials": said[: _HEADER + 1_000]})


def names(genes: Genes) -> Sent:
    characters = (":", "😀", ".", "%", "~", "é", "/", "\x9b", "a", "=", "&a=1")
    name = quote(characters[genes.character % len(characters)], safe="/=&") * (genes.length % 2_600)
    places = (
        f"{_CRUD}/open/data/{name}/data.xml",
        f"{PUBLIC}/crud/{name}/x/data/d/data.xml",
        f"{_CRUD}/open/data/d/{name}",
    )
    paths = (*places, f"{PUBLIC}/form?{name}", f"/{name}", f"{PUBLIC}/search/{name}/{name}")
    method = ("GET", "PUT", "DELETE", "HEAD")[genes.choice % 4]
    return Sent(method, paths[genes.other % len(paths)][:8_100], b"<d/>" if method == "PUT" else None, XML)


KINDS: Mapping[str, Callable[[Genes], Sent]] = {
    "PUT data": put_data,
    "GET data": get_data,
    "GET data that a provider has": provider_data,
    "PUT definition": put_definition,
    "GET definition, migrated": get_definition,
    "PUT data of a new definition": data_of_made,
    "publish": publish,
    "PUT attachment": put_attachment,
    "list of attachments": list_attachments,
    "list of forms": list_forms,
    "query for forms": query_forms,
    "search": search,
    "distinct values": distinct_values,
    "reindex": reindex,
    "headers": headers,
    "credentials": credentials,
    "names": names,
}


# XML that may cost much: the shapes that a document can have, each drawn with a few numbers.

CHARACTERS = ("x", "&amp;", "é", "😀", "a ", "&#xa0;", "\t", "]", "İ")
"""What fills names, texts and blanks; the last grows where it is folded."""

_BLANKS = (" ", "\n", "\t", "\r\n")
_NAMES = ("d", "field", "é", "grid-iteration")


def content(genes: Genes, room: int) -> str:
    return SHAPES[genes.shape % len(SHAPES)](genes, room)


def _filled(genes: Genes, room: int) -> str:
    character = CHARACTERS[genes.character % len(CHARACTERS)]
    return character * (room // len(character.encode()))


def _value(genes: Genes) -> str:
    return _filled(genes, genes.length % 2_000)


def _text(genes: Genes, room: int) -> str:
    return f"<name>{_filled(genes, room)}</name>"


def _distinct(genes: Genes, room: int) -> str:
    space = "u" * (genes.length % 1_000 + 1)
    names = (f"<n:x{number}/>" for number in range(room // 12))
    return f'<w xmlns:n="{space}">{"".join(names)}</w>'


def _attributes(genes: Genes, room: int) -> str:
    value = "v" * (genes.other % 50)
    return "<d " + _numbered(f'x{{}}="{value}"', room // (len(value) + 11)) + "/>"


def _attributes_in_a_namespace(genes: Genes, room: int) -> str:
    space = "u" * (genes.length % 1_000 + 1)
    return f'<d xmlns:n="{space}" ' + _numbered('n:x{}=""', room // 12) + "/>"


def _all_prefixes(genes: Genes, room: int) -> str:
    number = room // 60 + 2
    declared = _numbered('xmlns:fr{0}="urn:x:{0}"', number)
    one = f'<name encrypted="true" fr1:y="1">{_value(genes)[:20]}</name>'
    return f"<d {declared}>{one * number}</d>"


def _blank_tag(genes: Genes, room: int) -> str:
    blank = _BLANKS[genes.other % len(_BLANKS)]
    return f'<a encrypted="true"{blank * (room // len(blank))}>x</a>'


def _sections(genes: Genes, room: int) -> str:
    one = f"<![CDATA[{'x' * (genes.length % 2_000)}]]>"
    return f"<name>{one * max(1, room // len(one))}</name>"


def _numbered(each: str, number: int) -> str:
    return " ".join(each.format(it) for it in range(number))


_PATH = "/fr/service/persistence/crud/cost/open/data/d/a.bin"
_REPEATED: tuple[Callable[[Genes], str], ...] = (
    lambda genes: f"<name>{_value(genes)}</name>",
    lambda genes: f"<{_NAMES[genes.other % len(_NAMES)]}/>",
    lambda genes: "<d " + _numbered('a{}=""', genes.other % 200 + 1) + "/>",
    lambda genes: "<name>" * (genes.other % 240 + 1) + _value(genes) + "</name>" * (genes.other % 240 + 1),
    lambda genes: "<d " + _numbered('xmlns:p{0}="urn:{0}"', genes.other % 400 + 1) + "><p0:name/></d>",
    lambda genes: f'<name encrypted="true">{_value(genes)}</name>',
    lambda genes: f"<kids><note>{_value(genes)}</note></kids>",
    lambda genes: f"<!--{'x' * (genes.length % 2_000)}--><?p {'y' * (genes.other % 200)}?>",
    lambda genes: f'<photo filename="{"x" * (genes.length % 2_000)}" mediatype="a/b" size="1">{_PATH}</photo>',
)
"""What stands again and again, at least once."""


def _repeated(one: str, room: int) -> str:
    return one * max(1, room // len(one.encode()))


SHAPES: tuple[Callable[[Genes, int], str], ...] = (
    *(_text, _distinct, _attributes, _attributes_in_a_namespace, _all_prefixes, _blank_tag, _sections),
    *((lambda genes, room, of=each: _repeated(of(genes), room)) for each in _REPEATED),
)


LARGE = 12
"""Documents of the form that has large values: each has as much as is indexed."""

SMALL = 300


def lay_down(service: Service) -> None:
    """Publish forms, and save documents of them, some with as much in an indexed control as there can be."""
    for form, body in (
        ("open", UNMARKED),
        ("sealed", SEALED),
        ("large", UNMARKED),
        ("small", UNMARKED),
        ("made", UNMARKED),
        ("guarded", definition(PERMISSIONS.replace("</permissions>", f"{_roles()}</permissions>"))),
    ):
        _lay(service, f"{_CRUD}/{form}/form/form.xhtml", body)
    for number in range(LARGE):
        text = ("a" * 1_000_000, "a b " * 250_000, "word " * 200_000, "é" * 1_000_000)[number % 4]
        _lay(service, f"{_CRUD}/large/data/d{number}/data.xml", _named(text, f"note {'a' * 500_000}"))
    for number in range(SMALL):
        _lay(service, f"{_CRUD}/small/data/d{number}/data.xml", _named(f"name {number} ab", "a note"))
        if number < SMALL // 3:
            _lay(service, f"{_CRUD}/guarded/data/d{number}/data.xml", _named("x", "y"))
    for form in ("large", "small", "guarded", "open"):
        _lay(service, f"{PUBLIC}/search/cost/{form}", b"<search/>", "POST")
    _lay(service, f"{_CRUD}/sealed/data/d/a.bin", b"x" * 1_000)


def _roles() -> str:
    role = '<permission operations="read"><user-role any-of="z{}"/></permission>'
    return "".join(role.format(number) for number in range(800))


def _named(name: str, rest: str) -> bytes:
    return f"<form><person><name>{name}</name><other>{rest}</other></person></form>".encode()


def _lay(service: Service, path: str, body: bytes, method: str = "PUT") -> None:
    answer = service.raw(method, path, XML, body)
    assert answer.status < 300, (path, answer.status, answer.cause)
