"""``persistence show``: the facts about a version, a document or a draft."""

import json
import os
from pathlib import Path

import pytest

from persistence.cli.terminal import safe
from persistence.errors import DamagedError
from tests.cli.command_runner import PREFIX, Place, ended
from tests.http.test_attachments import DEFINITION, LISTS
from tests.published import definition
from tests.sidecars import resealed, said

D = "hr/leave/data/d"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def facts(lines: list[str]) -> dict[str, str]:
    """Return the lines below the first as values by label; labels have one word."""
    return {line.split()[0]: line.partition(" ")[2] for line in lines[1:]}


# --- published versions ----------------------------------------------------------------------------------------------


def test_without_a_number_it_is_the_latest_version_that_is_not_deleted(place: Place) -> None:
    for version in (1, 2, 3):
        place.put("hr/leave/form/form.xhtml", definition(""), version=version)
    place.delete("hr/leave/form/form.xhtml", version=3)
    lines = place.lines("show", "hr/leave")
    assert lines[0] == "hr/leave version 2"
    assert "other versions 1" in lines


def test_a_published_definition_says_from_which_unpublished_one_it_was_made(place: Place) -> None:
    body = definition("<application-name>hr</application-name><form-name>leave</form-name>")
    place.put("svc/builder/data/u1/data.xml", body)
    published = place.client.post("/fr/service/svc/builder/publish/u1?available=false")
    assert published.status_code == 200, published.text
    said = place.lines("show", "hr/leave")
    assert "made of unpublished definition u1" in said
    assert "available no" in said


@pytest.mark.parametrize(
    ("properties", "metadata", "lines"),
    [
        ("", "", ["neither the definition nor a property defines any", "everyone may do everything"]),
        ("", "<permissions/>", ["by the definition", "nobody may do anything"]),
        (
            '"svc.permissions.hr.*" = \'{"anyone": ["create"]}\'',
            "",
            ["by property, because the definition has none", "anyone: create"],
        ),
        (
            '"svc.persistence.*.permissions" = false',
            "<permissions/>",
            ["switched off by property", "everyone may do everything"],
        ),
    ],
)
def test_permissions_come_from_the_definition_or_a_property(
    place: Place, tmp_path: Path, properties: str, metadata: str, lines: list[str]
) -> None:
    """Spec crud 6.2 and 6.3: an empty element is not the same as none."""
    (tmp_path / "own.toml").write_text(properties)
    place.put("hr/leave/form/form.xhtml", definition(metadata))
    said = place.lines("show", "hr/leave", "--config", str(tmp_path / "own.toml"))
    at = said.index(f"permissions {lines[0]}")
    assert said[at + 1] == lines[1]


@pytest.mark.parametrize(
    ("metadata", "is_on", "said"),
    [
        ("", "true", "yes, by property"),
        ("", "false", "no"),
        ("<singleton>false</singleton>", "true", "no, by the definition"),
    ],
)
def test_the_definition_decides_about_singleton_before_the_property(
    place: Place, tmp_path: Path, metadata: str, is_on: str, said: str
) -> None:
    (tmp_path / "own.toml").write_text(f"svc.detail.singleton.enabled.hr.leave = {is_on}")
    place.put("hr/leave/form/form.xhtml", definition(metadata))
    assert f"singleton {said}" in place.lines("show", "hr/leave", "--config", str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("format_", "scan", "photo"),
    [("4.0.0", "s/scan", "s/r/photo"), ("4.8.0", "s/scan", "s/r/r-iteration/photo"), ("2019.1.0", "s/g/scan", None)],
)
def test_controls_have_their_paths_in_the_format_of_data_at_rest(
    place: Place, tmp_path: Path, format_: str, scan: str, photo: str | None
) -> None:
    marked = DEFINITION.replace('id="scan-control"', 'id="scan-control" class="fr-search fr-encrypt"')
    (tmp_path / "own.toml").write_text(f'"svc.persistence.*.data-format-version" = "{format_}"')
    place.put("hr/leave/form/form.xhtml", marked.format(LISTS).encode())
    lines = place.lines("show", "hr/leave", "--config", str(tmp_path / "own.toml"))
    at = lines.index(f"3 controls, with paths in data of format {format_}:")
    assert lines[at + 1 : at + 3] == ["NAME KIND PATH MARKS", f"scan attachment {scan} indexed encrypted"]
    assert lines[at + 4] == f"photo image-attachment {photo or 's/r/r-iteration/photo'}"


def test_a_definition_edited_by_hand_says_so(place: Place) -> None:
    place.put("hr/leave/form/form.xhtml", definition("<title>Old</title>"))
    (place.root / "hr/leave/form/1/form.xhtml").write_bytes(definition("<title>New</title>"))
    lines = place.lines("show", "hr/leave")
    assert "titles New" in lines
    assert "edited by hand, or copied without its times" in lines


def test_what_is_damaged_around_a_version_is_said(place: Place) -> None:
    for version in (1, 2):
        place.put("hr/leave/form/form.xhtml", definition(""), version=version)
    place.put("hr/leave/form/logo.png", b"logo")
    (place.root / "hr/leave/form/2/form.xhtml").unlink()
    (place.root / "hr/leave/form/1/logo.png").unlink()
    lines = place.lines("show", "hr/leave/1", status=4)
    assert "other versions 2 damaged: the content hr/leave/form/2/form.xhtml is missing" in lines
    assert lines[-1] == "logo.png damaged: the content hr/leave/form/1/logo.png is missing"
    assert isinstance(place.run("show", "hr/leave/2").exception, DamagedError)


# --- documents and drafts --------------------------------------------------------------------------------------------


def test_the_organization_of_the_owner_is_shown_from_the_top(place: Place) -> None:
    credentials = '{"username": "lea", "groups": ["g"], "organizations": [["Acme", "Sales"]]}'
    place.put(f"{D}/data.xml", Credentials=credentials)
    assert "organization Acme / Sales" in place.lines("show", D)


def test_older_revisions_are_listed_newest_first(place: Place) -> None:
    instants = []
    for number in range(4):
        place.put(f"{D}/data.xml", f"<d>{number}</d>".encode(), Username=f"u{number}")
        instants.append(place.instant(f"{D}/data.xml"))
    place.delete(f"{D}/data.xml")
    place.put(f"{D}/data.xml")
    lines = place.lines("show", D)
    at = lines.index("5 older revisions:")
    assert lines[at + 2].endswith(" zoe deleted")
    assert lines[at + 3 :] == [f"{instants[number]} u{number}" for number in (3, 2, 1, 0)]


def test_a_draft_and_its_saved_data_know_of_each_other(place: Place) -> None:
    place.put(f"{D}/data.xml", Username="lea")
    place.put("hr/leave/draft/d/data.xml", Username="bob")
    saved, draft = (place.instant(f"hr/leave/{kind}/d/data.xml") for kind in ("data", "draft"))
    assert f"draft of {draft} by bob" in place.lines("show", D)
    assert f"saved data of {saved} by lea" in place.lines("show", "hr/leave/draft/d")
    place.put("hr/leave/draft/new/data.xml")
    assert "saved data none" in place.lines("show", "hr/leave/draft/new")


def test_a_document_edited_by_hand_says_so_and_has_no_digest(place: Place) -> None:
    place.put(f"{D}/data.xml", b"<d>as it was</d>")
    (place.root / D / "data.xml").write_text("<d/>")
    lines = place.lines("show", D)
    assert "size 4 bytes" in lines
    assert "edited by hand, or copied without its times; what was saved had 16 bytes" in lines
    assert not any(line.startswith("digest") for line in lines)


def test_attachments_that_came_before_the_data_are_shown(place: Place) -> None:
    place.put(f"{D}/a.bin", b"scan", Content_Type="image/png")
    lines = place.lines("show", D)
    assert lines[1] == "data never saved: there are only attachments"
    assert lines[-1] == "a.bin image/png 4"


def test_names_on_disk_are_shown_as_in_the_url(tmp_path: Path) -> None:
    place = Place(tmp_path / os.fsdecode(b"d\xff"))
    place.put(f"{D}/50% up.json", b"scan")
    lines = place.lines("show", D)
    assert lines[-1] == "50% up.json application/octet-stream 4"
    assert f"file {tmp_path}/d\N{REPLACEMENT CHARACTER}/{D}/data.xml" in lines


def test_attachments_of_another_document_are_not_its_own(place: Place) -> None:
    place.put(f"{D}/a.bin", b"scan")
    place.put(f"{D}/data.xml", f"<d><a>{PREFIX}hr/leave/data/other/a.bin</a></d>".encode())
    assert place.lines("show", D)[-1].endswith("not named by the data")


def test_what_is_damaged_in_a_document_is_said(place: Place) -> None:
    place.put(f"{D}/data.xml")
    place.put(f"{D}/a.bin", b"scan")
    place.put(f"{D}/data.xml")
    place.put("hr/leave/draft/d/data.xml")
    (place.root / D / "a.bin.json").write_text("{")
    (place.root / "hr/leave/draft/d/data.xml.json").write_text("{")
    next((place.root / D / ".history").glob("*.json")).write_text("{")
    (place.root / D / "data.xml").write_text("<d>cut o")
    lines = place.lines("show", D, status=4)
    assert sum("damaged: " in line for line in lines) == 4
    assert any(
        line.startswith(f"content damaged: the content {D}/data.xml is damaged: ") and "not well-formed XML" in line
        for line in lines
    )
    assert any(line.startswith("draft damaged: the sidecar hr/leave/draft/d/data.xml.json cannot") for line in lines)


# --- paths and texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data", "1", "form", "a b", "ä", "50%", "%41", "x.json", "con:"])
def test_the_number_of_names_tells_what_is_meant(place: Place, name: str) -> None:
    for path in (f"{name}/{name}/form/form.xhtml", f"{name}/data/form/form.xhtml"):
        place.put(path, definition(""))
    place.put(f"{name}/{name}/data/{name}/data.xml")
    place.put(f"{name}/data/draft/1/data.xml")
    for path, title in {
        f"{name}/{name}": f"{name}/{name} version 1",
        f"{name}/data": f"{name}/data version 1",
        f"{name}/data/1": f"{name}/data version 1",
        f"{name}/{name}/data/{name}": f"{name}/{name}/data/{name}",
        f"{name}/data/draft/1": f"{name}/data/draft/1",
    }.items():
        assert place.lines("show", path)[0] == title


@pytest.mark.parametrize(
    ("path", "status", "cause"),
    [
        ("hr/leave/data/x", 1, "persistence: hr/leave/data/x does not exist"),
        ("hr/leave/draft/d", 1, "persistence: hr/leave/draft/d does not exist"),
        ("hr/leave/9", 1, "persistence: hr/leave/9 does not exist"),
        ("hr/leave/2", 1, "persistence: hr/leave/2 was deleted at "),
        ("hr/sick", 1, "persistence: hr/sick has no published version"),
        ("hr", 2, "Error: hr is not APP/FORM, APP/FORM/VERSION, "),
        ("hr/leave/data/d/data.xml", 2, "Error: hr/leave/data/d/data.xml is not APP/FORM, "),
        ("hr/leave/forms/1", 2, "Error: hr/leave/forms/1 is not APP/FORM, "),
        ("hr/leave/data", 2, "Error: 'data' is not a version of a form"),
        ("hr/leave/0", 2, "Error: '0' is not a version of a form"),
        ("hr/leave/9999999999999999999", 2, "Error: '9999999999999999999' is not a version of a form"),
        ("hr/leave/", 2, "Error: '' is not a version of a form"),
        ("hr//data/d", 2, "Error: a name in the path is empty"),
        ("../leave/data/d", 2, "Error: a name in the path must not start with a dot: '..'"),
        ("hr/leave/data/" + "x" * 256, 2, "Error: a name in the path is too long: 255 bytes are allowed"),
        ("hr/leave/data/\x1b[31m", 2, "Error: a name in the path holds a character that is not allowed: '\\x1b[31m'"),
        (b"hr/leave/data/\xff", 2, "Error: a name in the path holds a character that is not allowed: '\\udcff'"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    path: str | bytes,
    status: int,
    cause: str,
) -> None:
    for version in (1, 2):
        place.put("hr/leave/form/form.xhtml", definition(""), version=version)
    place.delete("hr/leave/form/form.xhtml", version=2)
    place.put(f"{D}/data.xml")
    done = ended(["show", os.fsdecode(path), "--data", str(place.root)], monkeypatch, capsys)
    assert (done.status, done.out) == (status, "")
    assert done.errors[-1].startswith(cause)
    assert status == 2 or len(done.errors) == 1


def test_text_from_files_cannot_command_the_terminal(place: Place) -> None:
    document = "hr/leave/data/\u202ed"
    place.put("hr/leave/form/form.xhtml", definition("<title>TITLE</title>"))
    place.put(f"{document}/\u2066a.bin", b"scan", Content_Type="image/TYPE")
    place.put(f"{document}/data.xml", Username="USER", Workflow_Stage="STAGE")
    place.put(f"{document}/data.xml", Username="USER", Workflow_Stage="STAGE")
    for sidecar in place.root.rglob("*.json"):
        text = json.dumps(said(sidecar))
        for word in ("TITLE", "TYPE", "USER", "STAGE"):
            text = text.replace(word, rf"{word}\u001b[31m\n\u009b2J")
        if "address" in text:
            resealed(sidecar, **json.loads(text))
    for path, word in {"hr/leave": "TITLE", document: "TYPE USER STAGE"}.items():
        out = place.run("show", path).stdout
        assert all(safe(line) == line for line in out.split("\n"))
        assert all(f"{each}�[31m��2J" in out for each in word.split())


def test_it_shows_what_a_running_service_has_just_stored(place: Place) -> None:
    for number in range(3):
        place.put(f"{D}/data.xml", f"<d>{'x' * number}</d>".encode())
        assert f"modified {place.instant(f'{D}/data.xml')}" in place.lines("show", D)
