"""Two versions of the form ``hr/trip``: in the second one a control has moved, another is new, and one is gone."""

_SHELL = """<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
  xmlns:xxf="http://orbeon.org/oxf/xml/xforms" xmlns:fr="http://orbeon.org/oxf/xml/form-runner">
<xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form>
<logo>/fr/service/persistence/crud/hr/trip/form/logo.png</logo></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">{binds}</xf:bind>
<xf:instance id="fr-form-metadata"><metadata><application-name>hr</application-name><form-name>trip</form-name>
<title xml:lang="en">{title}</title><description>All <b>about</b> <i>it</i></description>
<permissions>{permissions}</permissions></metadata></xf:instance>
<xf:instance id="fr-form-resources"><resources>{resources}</resources></xf:instance>
</xf:model></xh:head>
<xh:body><fr:view><fr:body>{view}</fr:body></fr:view></xh:body></xh:html>
"""


def _control(name: str, kind: str = "input", inside: str = "") -> str:
    label = f'<xf:label ref="$form-resources/{name}/label"/>'
    return f'<xf:{kind} id="{name}-control" bind="{name}-bind">{label}{inside}</xf:{kind}>'


FIRST = _SHELL.format(
    title="Trip",
    permissions='<permission operations="create -list"/>',
    binds='<xf:bind id="trip-bind" ref="trip"><xf:bind id="city-bind" ref="city" required="true()"/>'
    '<xf:bind id="day-bind" ref="day" type="xf:string"/><xf:bind id="by-bind" ref="by"/>'
    '<xf:bind id="note-bind" ref="note"/></xf:bind><xf:bind id="more-bind" ref="more"/>',
    resources='<resource xml:lang="en"><city><label>City</label></city><by><label>By</label>'
    "<item><value>t</value><label>Train</label></item></by></resource>"
    '<resource xml:lang="de"><city><label>Ort</label></city></resource>',
    view='<fr:section id="trip-section" bind="trip-bind">'
    + _control("city")
    + _control("day")
    + _control("by", "select1", '<xf:itemset ref="$form-resources/by/item"/>')
    + _control("note")
    + '</fr:section><fr:section id="more-section" bind="more-bind"/>',
)
SECOND = _SHELL.format(
    title="Journey",
    permissions='<permission operations="create -list"/><permission operations="read update"><owner/></permission>',
    binds='<xf:bind id="trip-bind" ref="trip"><xf:bind id="city-bind" ref="city" constraint=". != \'x\'">'
    '<xf:constraint level="warning" value="string-length(.) &lt; 9"/></xf:bind>'
    '<xf:bind id="day-bind" ref="day" type="xf:date" relevant="../city != \'\'" calculate="now()"/>'
    '<xf:bind id="by-bind" ref="by"/><xf:bind id="cost-bind" ref="cost" xxf:default="0"/></xf:bind>'
    '<xf:bind id="more-bind" ref="more"><xf:bind id="note-bind" ref="note"/></xf:bind>',
    resources='<resource xml:lang="en"><city><label>City</label></city><by><label>By</label>'
    "<item><value>t</value><label>Railway</label></item><item><value>b</value><label>Bus</label></item></by></resource>"
    '<resource xml:lang="de"><city><label>Stadt</label></city></resource>',
    view='<fr:section id="trip-section" bind="trip-bind">'
    + _control("city", inside="<fr:index/>")
    + _control("day")
    + _control("by", "select1", '<xf:itemset ref="$form-resources/by/item"/>')
    + _control("cost", inside="<fr:encrypt/>")
    + '</fr:section><fr:section id="more-section" bind="more-bind">'
    + _control("note")
    + "</fr:section>",
)
