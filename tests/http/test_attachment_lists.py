"""The list of a document's attachments over HTTP: spec crud 8.2, spec forms 6.7."""

from pathlib import Path

from lxml import etree

from tests.in_process import serving
from tests.service import V1, Answer, Service

CRUD = "/fr/service/persistence/crud"
FR = "http://orbeon.org/oxf/xml/form-runner"
DEFINITION = f"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="{FR}"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><s><g><scan/><many/></g><r><r-iteration><photo/></r-iteration></r></s></form>
</xf:instance><xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
<xf:bind id="s-bind" ref="s" name="s"><xf:bind id="g-bind" ref="g" name="g">
<xf:bind id="scan-bind" ref="scan" name="scan"/><xf:bind id="many-bind" ref="many" name="many"/></xf:bind>
<xf:bind id="r-bind" ref="r" name="r"><xf:bind id="r-iteration-bind" ref="r-iteration" name="r-iteration">
<xf:bind id="photo-bind" ref="photo" name="photo"/></xf:bind></xf:bind></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata>{{}}</metadata></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="s-section" bind="s-bind"><fr:grid id="g-grid" bind="g-bind">
<fr:c><fr:attachment id="scan-control" bind="scan-bind"/></fr:c>
<fr:c><fr:attachment id="many-control" bind="many-bind" multiple="true"/></fr:c></fr:grid>
<fr:grid id="r-grid" bind="r-bind" repeat="content"><fr:c><fr:image-attachment id="photo-control" bind="photo-bind"/>
</fr:c></fr:grid></fr:section></fr:body></fr:view></xh:body></xh:html>"""
LISTS = (
    '<migration version="4.8.0">[{"path":"s/r","iteration-name":"r-iteration"}]</migration>'
    '<migration version="2019.1.0">{"migrations":[{"containerPath":[{"value":"s"}],"newGridElem":{"value":"g"}}]}'
    "</migration>"
)
"""The grids that data of format 4.0.0 has no elements of."""


def listed(answer: Answer) -> list[dict[str, str]]:
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.body
    root = etree.fromstring(answer.body)
    assert root.tag == "attachments"
    return [{**{str(name): str(value) for name, value in each.attrib.items()}, "": each.text or ""} for each in root]


def ask(service: Service, form: str, document: str = "D", **user: str) -> Answer:
    headers = {service.prefix + name: value for name, value in user.items()}
    return service.raw("GET", f"/fr/service/{form}/attachments?document={document}", headers)


def store(service: Service, form: str, data: str, metadata: str = "", lists: str = LISTS) -> None:
    service.put(f"{form}/form/form.xhtml", DEFINITION.format(lists + metadata).encode())
    assert service.put(f"{form}/data/D/data.xml", data.encode(), **V1, Username="lea").status == 201


def test_what_data_names_in_controls_of_the_form(service: Service, form: str) -> None:
    """8.2: single and multiple, in repetitions, with the holders' attributes; nothing else."""
    base = f"{CRUD}/{form}/data/D"
    store(
        service,
        form,
        f'<form xmlns:fr="{FR}"><s>'
        f'<scan filename="a&amp;b.pdf" mediatype="application/pdf" size="812">{base}/a.bin</scan>'
        f'<many><_ filename="1">{base}/1.bin</_>'
        f'<_ fr:kept="true" fr:relevant="false">{base}/2.bin</_></many>'
        f"<r><photo>\n{base}/p1.bin\n</photo></r><r fr:relevant='false'><photo>{base}/p2.bin</photo></r>"
        f"<other>{base}/o.bin</other><g><scan>{base}/g.bin</scan></g></s><scan>{base}/s.bin</scan>"
        f"<s><scan>{CRUD}/{form}/data/E/e.bin</scan><scan/></s></form>",
    )
    assert listed(ask(service, form)) == [
        {"name": "scan", "filename": "a&b.pdf", "mediatype": "application/pdf", "size": "812", "": f"{base}/a.bin"},
        {"name": "many", "filename": "1", "": f"{base}/1.bin"},
        {"name": "many", f"{{{FR}}}kept": "true", f"{{{FR}}}relevant": "false", "": f"{base}/2.bin"},
        {"name": "photo", "": f"{base}/p1.bin"},
        {"name": "photo", f"{{{FR}}}relevant": "false", "": f"{base}/p2.bin"},
    ]


def test_where_grids_are_not_listed_their_elements_are_in_the_paths(service: Service, form: str) -> None:
    base = f"{CRUD}/{form}/data/D"
    photo = f"<r><r-iteration><photo>{base}/p.bin</photo></r-iteration><photo>{base}/q.bin</photo></r>"
    data = f"<form><s><scan>{base}/a.bin</scan><g><scan>{base}/g.bin</scan></g>{photo}</s></form>"
    store(service, form, data, lists="")
    assert listed(ask(service, form)) == [{"name": "scan", "": f"{base}/g.bin"}, {"name": "photo", "": f"{base}/p.bin"}]


def test_no_attachments(service: Service, form: str) -> None:
    store(service, form, "<form><s><scan/></s></form>")
    assert listed(ask(service, form)) == []


def test_a_republish_counts(service: Service, form: str) -> None:
    """The controls are those of the definition as it is now."""
    base = f"{CRUD}/{form}/data/D"
    store(service, form, f"<form><s><scan>{base}/a.bin</scan><pic>{base}/b.bin</pic></s></form>")
    assert [each["name"] for each in listed(ask(service, form))] == ["scan"]
    service.put(f"{form}/form/form.xhtml", DEFINITION.format(LISTS).replace("scan", "pic").encode())
    assert [each["name"] for each in listed(ask(service, form))] == ["pic"]


def test_who_may_not_read_the_data_gets_no_list(service: Service, form: str) -> None:
    own = '<permissions><permission operations="create read"><owner/></permission></permissions>'
    store(service, form, "<form/>", own)
    assert [ask(service, form, Username=name).status for name in ("lea", "bob")] == [200, 403]


def test_bad_requests(service: Service, form: str) -> None:
    assert service.raw("GET", f"/fr/service/{form}/attachments").status == 400
    assert ask(service, form).status == 404
    service.put(f"{form}/data/D/data.xml", **V1)
    assert ask(service, form).refuses(404, "not published")
    service.delete(f"{form}/data/D/data.xml")
    assert ask(service, form).status == service.deleted
    assert ask(service, form, "..").status == 400


def test_in_the_format_of_data_at_rest(tmp_path: Path) -> None:
    """Forms 6.7: in the newest format grids and iterations are steps of the path."""
    settings = tmp_path / "persistence.toml"
    settings.write_text('"svc.persistence.*.data-format-version" = "2019.1.0"\n')
    with serving(tmp_path, env={"PERSISTENCE_CONFIG": str(settings)}) as service:
        base = f"{CRUD}/a/f/data/D"
        inner = f"<g><scan>{base}/a.bin</scan></g><r><r-iteration><photo>{base}/b.bin</photo></r-iteration></r>"
        store(service, "a/f", f"<form><s>{inner}<scan>{base}/c.bin</scan></s></form>")
        assert [each[""] for each in listed(ask(service, "a/f"))] == [f"{base}/a.bin", f"{base}/b.bin"]
