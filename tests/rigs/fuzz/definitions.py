"""Form definitions for the fuzzer: what a designer would publish, in small, with structures and metadata that are odd.

They are those of the property tests of ``persistence.forms``, with edits that let data, binds and view disagree.
"""

from __future__ import annotations

import re
from random import Random

from hypothesis import strategies as st

from tests.forms.generated import forms
from tests.forms.vectors import VECTORS, Form
from tests.rigs.fuzz.verdict import FR

CONTROLS = ("a", "b", "name", "control-1", "é")
"""Names of controls that come again and again."""

CONTAINERS = ("s", "g", "grid-1", "a", "x.y")
"""Names of sections and grids."""

_ODD_NAMES = ("a:b", "a-", "x" * 300, "_", "control-1-iteration")
_CRUD = "/fr/service/persistence/crud"
FILE = "0cc175b9.bin"
"""The name of most attachments."""

_HOLDERS = (
    f"{_CRUD}/hr/leave/data/1b4e28ba/{FILE}",
    f"{_CRUD}/svc/builder/data/1b4e28ba/{FILE}",
    f"{_CRUD}/orbeon/builder/data/1b4e28ba/{FILE}?x=1",
    f"{_CRUD}/hr/leave/form/{FILE}",
    f"{_CRUD}/hr/library/form/{FILE}",
    f"\n{_CRUD}/svc/builder/draft/%C3%BC/e%CC%81.json ",
)
_ODD_HOLDERS = (
    f"{_CRUD}/svc/builder/data/..%2F..%2Fx/y.bin",
    f"{_CRUD}/svc/builder/data/%00/%FF",
    f"{_CRUD}/svc/builder/data/1b4e28ba/{'x' * 250}",
    f"{_CRUD}/_/library/form/%2e%2e",
    f"{_CRUD}////",
    f"{_CRUD}/hr/leave/form/",
    f"{_CRUD}/hr/leave/data/1b4e28ba/data.xml",
    f"{_CRUD}/{'a/' * 3000}",
)
_REPEATS = (
    *('repeat="content"',) * 3,
    *('repeat="content" min="1" max="3"', 'repeat="true"', 'minOccurs="0"', 'max=""', 'repeat="odd"'),
    *('repeat="content" fb:initial-iterations="first"', 'repeat="content" repeat-min="-1"'),
)
_VALUES = (*("", "", "text", "<!-- c -->", "<?pi x?>", "&lt;") * 3, *_HOLDERS)
_WIDGETS = ("xf:input", "xf:select1", "fr:attachment", "fr:image", "fr:checkbox-input", "a:odd")
_WRITTEN = ("<form>", '<form fr:data-format-version="4.0.0">', '<form fr:data-format-version="x">')
_NAMESPACES = 'xmlns:a="urn:a" xmlns:b="urn:b"'
_METADATA = re.compile('<xf:instance id="fr-form-metadata">.*?</xf:instance>', re.DOTALL)
_DATA = re.compile("(<form)(.*?</form>)", re.DOTALL)
_NAMED = re.compile(r'<xf:bind id="([^"]*)-bind"')
_VALUE = re.compile(r"(?<=>)\w+(?=</)")
_CONTROL = re.compile(r'<xf:[\w-]+((?: id="[^"]*")?(?: bind="[^"]*")?)/>')
_EDITS = (
    (r'<xf:bind id="[^"]*"', ('<xf:bind id="other-bind"',)),
    (r' ref="[^"]*"', (' ref="../*[1]"', ' nodeset="a"', "")),
    (r'-(?:control|grid|section)"', ('-odd"',)),
    (r' id="[^"]*-(?:control|grid|section)"', ("",)),
    (r' bind="[^"]*"', ("",)),
    (r'(<fr:(?:grid|section) id="[^"]*" bind="[^"]*")>', tuple(rf"\1 {each}>" for each in _REPEATS)),
    (r"<(?!form>)([\w.-]+)>[^<]*</\1>", ("", r"\g<0>\g<0>")),
    (r"<([\w.-]+-iteration)>.*?</\1>", ("",)),
    (_CONTROL.pattern, (r"<xxf:dialog>\g<0></xxf:dialog>", r"\g<0>\g<0>")),
    (r"fr:c\b", ("a:x",)),
    (r"</?fr:(?:view|body)>", ("",)),
    (r'id="fr-form-model"', ('id="other"',)),
)
"""What is looked for, and what an odd form has instead: in one place, or everywhere if both tags must go."""

_EVERYWHERE = (r"fr:c\b", r"</?fr:(?:view|body)>")


_OPERATIONS = (
    *("create read update delete list", "create read update delete list", "create", "read update -list", "read"),
    *("-list", "", " read\n", "read read"),
)
_ODD_OPERATIONS = ("*", "READ", "fly", "read,update", "read")
_CONDITIONS = (
    *("", "", "<owner/>", "<group-member/>", "<any-authenticated-user/>", "<anyone-with-token/>", "<owner></owner>"),
    *('<user-role any-of="clerk payroll%20clerk"/>', "<user-role/>", '<user-role any-of="% %zz %ff"/>', "<a:owner/>"),
    *("<owner/><group-member/>", "<!-- c --><?pi x?>", "\n<owner/> <!-- c -->"),
)
_ODD_CONDITIONS = (
    *("<nobody/>", "<Owner/>", "<owner/><a:x/>", "", "<owner></owner>text", "<owner><nobody/></owner>"),
    *('<user-role name="clerk"/>', '<user-role a:any-of="clerk"/>', '<owner b="c"/>'),
)
_ODD_PERMISSIONS = (
    *("<permission/>", '<a:permission operations="read"/>', " <!-- c --> "),
    *('<a:permission a:operations="read"/>', '<permission operation="read"/>', "<else/>", "text"),
)


def _permissions(chance: Random) -> str:
    """Who may do what; most forms do not say, else hardly a document could be read."""
    if chance.random() < 0.6:
        return ""
    inside = "".join(_permission(chance) for _ in range(chance.randrange(4)))
    name = chance.choice(("permissions",) * 4 + ("a:permissions",))
    return f"<{name}>{inside}</{name}>"


def _permission(chance: Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(_ODD_PERMISSIONS)
    odd = chance.random() < 0.1
    operations = chance.choice(_ODD_OPERATIONS if odd else _OPERATIONS)
    conditions = chance.choice(_ODD_CONDITIONS if odd else _CONDITIONS)
    return f'<permission operations="{operations}">{conditions}</permission>'


_TRUTHS = ("true", "false", " true ", "", "tr<!-- -->ue", "<![CDATA[true]]>", "&#116;rue", "<x/>true")
_ITEMS = (
    *('<title xml:lang="en">Leave</title><title xml:lang="de">Urlaub</title>', "<title><b>x</b> y</title>", "<title/>"),
    *("<description>&#10;</description>", "<email><templates/></email>", "<version-comment>x</version-comment>"),
    "<library-versions><app>1</app><_>x</_></library-versions>",
    "<created-with-version>2023.1 PE</created-with-version>",
    *("<created-with-version>4.0.0</created-with-version>", "<updated-with-version>4.8-x</updated-with-version>"),
    *("<updated-with-version>99999999999.1</updated-with-version>", '<migration version="2019.1.0">{ no</migration>'),
    *(
        '<migration version="4.8.0">[{"path": "a/b"}]</migration>',
        '<migration version="9">x</migration>',
        "<migration/>",
    ),
)
_APPLICATIONS = (*("hr",) * 20, "Ä", " hr ", "", "..", "a/b", "x" * 300)
_FORMS = (*("leave",) * 20, "library", "builder", ".", "<!-- -->leave", "a&#9;b")


def _metadata(chance: Random) -> str:
    """The instance of the metadata, once in a while one that is overlooked, or says it twice."""
    said = [
        f"<application-name>{chance.choice(_APPLICATIONS)}</application-name>",
        f"<form-name>{chance.choice(_FORMS)}</form-name>",
        *(f"<{name}>{chance.choice(_TRUTHS)}</{name}>" for name in ("available", "singleton") if chance.random() < 0.4),
        _permissions(chance),
        *chance.sample(_ITEMS, chance.randrange(4)),
    ]
    chance.shuffle(said)
    start = chance.choice(("<metadata>",) * 9 + ('<metadata xmlns="urn:x">',))
    one = f"{start}{''.join(said)}</metadata>"
    return f'<xf:instance id="fr-form-metadata">{one * chance.choice((1,) * 9 + (2,))}</xf:instance>'


def _odd(form: Form, chance: Random, title: str) -> str:
    """Give a form the names and values that the fuzzer knows, any metadata, and up to four oddities."""
    text = _renamed(form.document(), chance)
    text = _VALUE.sub(lambda _: chance.choice(_ODD_HOLDERS if chance.random() < 0.03 else _VALUES), text)
    text = re.sub('repeat="content"', lambda _: chance.choice(_REPEATS), text)
    marks = ' class="fr-summary"><xf:label/><fr:index/>' if chance.random() < 0.25 else "><xf:label/>"

    def control(found: re.Match[str]) -> str:
        kind = chance.choice(_WIDGETS)
        return f"<{kind}{found[1]}{marks}</{kind}>"

    for pattern, others in chance.sample(_EDITS, chance.choice((0, 0, 1, 2, 3, 4))):
        found = list(re.finditer(pattern, text))
        for one in reversed(found if pattern in _EVERYWHERE else chance.sample(found, min(1, len(found)))):
            text = text[: one.start()] + one.expand(chance.choice(others)) + text[one.end() :]
    text = _CONTROL.sub(control, text)
    text = text.replace("<form>", chance.choice(_WRITTEN))
    text = _METADATA.sub(lambda _: _metadata(chance), text)
    text = text.replace("<xh:html", f"<xh:html {_NAMESPACES}")
    return text.replace("<xh:head>", f"<xh:head><xh:title>{title}</xh:title>")


def _renamed(text: str, chance: Random) -> str:
    """Call controls and containers as others are called, too, but for some."""
    for name in sorted({*_NAMED.findall(text)}):
        is_control = f'"{name}-control"' in text
        names = _ODD_NAMES if chance.random() < 0.03 else CONTROLS if is_control else CONTAINERS
        if chance.random() < 0.8:
            text = re.sub(rf"(?<![\w.:-]){re.escape(name)}(?![\w.=])", chance.choice(names), text)
    return text


_forms = forms() | st.sampled_from([form for each in VECTORS.values() for form in (each.form, each.expected)])
_chances = st.randoms(use_true_random=True)


def thrown(titles: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Definitions without XML declaration; their titles are any content."""
    return st.builds(_odd, _forms, _chances, titles)


def data_of(definition: str) -> str:
    """The data of a definition: form data with values and attachments where such a form has its controls."""
    found = _DATA.search(definition)
    assert found is not None
    return f'{found[1]} {_NAMESPACES} xmlns:fr="{FR}"{found[2]}'
