"""Trees: what is refused before one is made, what survives, and that a process does not grow with them."""

import subprocess
import sys
import threading

import pytest

from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.forms.definition_tree import Tree, on_tree, serialized
from persistence.limits import DEEPEST, LARGEST_TREE, MOST_DECLARATIONS, MOST_TREE_NODES

REFUSED = {
    "malformed": b"<r><a></r>",
    "empty": b"",
    "document type": b"<!DOCTYPE r><r/>",
    "entity": b'<!DOCTYPE r [<!ENTITY e "x">]><r>&e;</r>',
    "external entity": b'<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><r>&e;</r>',
    "deep": b"<a>" * (DEEPEST + 1) + b"</a>" * (DEEPEST + 1),
    "an encoding that nobody knows": b"<?xml version='1.0' encoding='klingon'?><r/>",
}


@pytest.mark.parametrize("name", REFUSED)
def test_in_a_body_it_is_a_bad_request_and_in_storage_damage(name: str) -> None:
    with pytest.raises(MalformedXmlError):
        on_tree(REFUSED[name], serialized)
    with pytest.raises(DamagedError):
        on_tree(REFUSED[name], serialized, is_stored=True)


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_too_large_is_a_bad_request(*, is_stored: bool) -> None:
    with pytest.raises(BadRequestError, match=f"more than {LARGEST_TREE}"):
        on_tree(b"<r>" + b" " * LARGEST_TREE + b"</r>", serialized, is_stored=is_stored)


def test_everything_in_a_document_survives() -> None:
    document = (
        "<?xml version='1.0' encoding='UTF-8'?>\n<!-- a --><?b c?><r xmlns:x=\"u\" x:y=\"z\">é &lt; "
        '<![CDATA[<d>]]> <!-- e --><f xml:lang="fr"/>\n  </r><!-- g --><?h?>'
    ).encode()
    assert on_tree(document, serialized).replace(b"\n", b"") == document.replace(b"\n", b"")


def test_other_encodings_come_out_as_utf_8() -> None:
    document = "<?xml version='1.0' encoding='ISO-8859-1'?><r>é</r>".encode("latin-1")
    assert on_tree(document, serialized) == "<?xml version='1.0' encoding='UTF-8'?>\n<r>é</r>".encode()


def test_the_work_is_done_in_a_thread_that_ends_and_its_exceptions_come_out() -> None:
    threads = []
    on_tree(b"<r/>", lambda _: threads.append(threading.current_thread()))
    assert threads != [threading.current_thread()]
    assert not threads[0].is_alive()
    with pytest.raises(ZeroDivisionError):
        on_tree(b"<r/>", lambda _: 1 // 0)


GROWTH = """
from persistence.forms.definition_tree import on_tree

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10

def parse(number):
    names = (f"a-rather-long-name-as-machines-make-them-{number}-{n}" for n in range(15_000))
    on_tree(b"<r>" + "".join(f"<{name}/>" for name in names).encode() + b"</r>", lambda tree: None)

for number in range(5):
    parse(number)
before = resident()
for number in range(5, 50):
    parse(number)
print(resident() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in use from /proc")
def test_documents_with_ever_new_names_do_not_fill_the_memory() -> None:
    """675 000 names, of which a thread that stayed would keep almost 50 MB."""
    grown = int(subprocess.run([sys.executable, "-c", GROWTH], check=True, capture_output=True, timeout=60).stdout)
    assert grown < 20 << 20


def test_declarations_of_namespaces_are_bounded() -> None:
    """Lxml takes time that grows with their square."""
    with pytest.raises(BadRequestError, match="namespaces"):
        on_tree(b"<a>" + b'<a xmlns:a="u"/>' * (MOST_DECLARATIONS + 1) + b"</a>", lambda tree: tree.getroot().tag)


def name_of(tree: Tree) -> str:
    return tree.getroot().tag


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_document_is_read_in_each_encoding_in_which_it_can_be_stored(codec: str) -> None:
    assert on_tree("<é>text</é>".encode(codec), name_of) == "é"
    assert on_tree("\n<é/>".encode(codec), name_of, is_stored=True) == "é"


def test_what_only_one_parser_takes_is_no_damage() -> None:
    """It was accepted, and is there as it was sent: whoever asks for it in another format hears why not."""
    odd = b"<d xmlns:n='http://{'/>"
    with pytest.raises(MalformedXmlError, match="not a valid URI"):
        on_tree(odd, name_of)
    with pytest.raises(BadRequestError, match="not a valid URI"):
        on_tree(odd, name_of, is_stored=True)


def test_what_cannot_have_been_stored_is_damage() -> None:
    with pytest.raises(MalformedXmlError):
        on_tree(b"<d>", name_of)
    with pytest.raises(DamagedError):
        on_tree(b"<d>", name_of, is_stored=True)


def test_elements_and_attributes_of_a_tree_are_bounded() -> None:
    """Each takes some hundreds of bytes there, however short it is."""
    most = b"<a>" + b"<a b=''/>" * ((MOST_TREE_NODES - 1) // 2) + b"%s</a>"
    assert on_tree(most % b"", name_of) == "a"
    with pytest.raises(BadRequestError, match=str(MOST_TREE_NODES)):
        on_tree(most % b"<a/><a/>", name_of)


REFUSED_TREE = """
from persistence.errors import BadRequestError
from persistence.forms.definition_tree import on_tree

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10

def refuse(tree):
    for element in list(tree.iter()):
        raise BadRequestError("it is refused")

on_tree(b"<r/>", str)
before = resident()
try:
    on_tree(b"<r>" + b"<a>x</a>" * 150_000 + b"</r>", refuse)
except BadRequestError:
    pass
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in use from /proc")
def test_a_tree_is_gone_when_it_is_refused() -> None:
    """The exception would keep it, and glibc the memory: 50 MB of this one."""
    grown = subprocess.run([sys.executable, "-c", REFUSED_TREE], check=True, capture_output=True, timeout=60).stdout
    assert int(grown) < 15 << 20
