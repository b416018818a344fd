"""The form of the search vectors and data of it (spec search 8.1)."""

from __future__ import annotations

from collections.abc import Iterable

FORM = """\
<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
         xmlns:fr="http://orbeon.org/oxf/xml/form-runner">
  <xh:head>
    <xh:title>Order</xh:title>
    <xf:model id="fr-form-model">
      <xf:instance id="fr-form-instance">
        <form>
          <customer><customer-grid><name/><email/><notes/><topics/><status/></customer-grid></customer>
          <items><lines><lines-iteration><product/></lines-iteration></lines></items>
        </form>
      </xf:instance>
      <xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">
        <xf:bind id="customer-bind" name="customer" ref="customer">
          <xf:bind id="customer-grid-bind" name="customer-grid" ref="customer-grid">
            <xf:bind id="name-bind" name="name" ref="name"/>
            <xf:bind id="email-bind" name="email" ref="email"/>
            <xf:bind id="notes-bind" name="notes" ref="notes"/>
            <xf:bind id="topics-bind" name="topics" ref="topics"/>
            <xf:bind id="status-bind" name="status" ref="status"/>
          </xf:bind>
        </xf:bind>
        <xf:bind id="items-bind" name="items" ref="items">
          <xf:bind id="lines-bind" name="lines" ref="lines">
            <xf:bind id="lines-iteration-bind" name="lines-iteration" ref="lines-iteration">
              <xf:bind id="product-bind" name="product" ref="product"/>
            </xf:bind>
          </xf:bind>
        </xf:bind>
      </xf:bind>
      <xf:instance id="fr-form-metadata">
        <metadata>
          <application-name>acme</application-name>
          <form-name>order</form-name>
          <title xml:lang="en">Order</title>
          <title xml:lang="de">Bestellung</title>
          <description xml:lang="en">Test form</description>
          <created-with-version>2023.1</created-with-version>
          <migration version="4.8.0">[{"path":"items/lines","iteration-name":"lines-iteration"}]</migration>
          <migration version="2019.1.0">{"migrations":[{"containerPath":[{"value":"customer"}],
            "newGridElem":{"value":"customer-grid"},"afterElem":null,"content":[{"value":"name"},{"value":"email"},
            {"value":"notes"},{"value":"topics"},{"value":"status"}],"topLevel":true}]}</migration>
        </metadata>
      </xf:instance>
    </xf:model>
  </xh:head>
  <xh:body><fr:view><fr:body>
    <fr:section id="customer-section" bind="customer-bind">
      <fr:grid id="customer-grid-grid" bind="customer-grid-bind">
        <fr:c x="1" y="1" w="6"><xf:input id="name-control" bind="name-bind">
          <fr:index><fr:summary-show/></fr:index></xf:input></fr:c>
        <fr:c x="7" y="1" w="6"><xf:input id="email-control" bind="email-bind" class="fr-search"/></fr:c>
        <fr:c x="1" y="2" w="12"><xf:textarea id="notes-control" bind="notes-bind"/></fr:c>
        <fr:c x="1" y="3" w="6"><xf:select id="topics-control" bind="topics-bind"><fr:index/></xf:select></fr:c>
        <fr:c x="7" y="3" w="6"><xf:select1 id="status-control" bind="status-bind" class="fr-summary fr-search"/></fr:c>
      </fr:grid>
    </fr:section>
    <fr:section id="items-section" bind="items-bind">
      <fr:grid id="lines-grid" bind="lines-bind" repeat="content">
        <fr:c x="1" y="1" w="12"><xf:input id="product-control" bind="product-bind" class="fr-summary"/></fr:c>
      </fr:grid>
    </fr:section>
  </fr:body></fr:view></xh:body>
</xh:html>
"""


def data(
    name: str, email: str = "", notes: str = "", topics: str = "", status: str = "", products: Iterable[str] = ()
) -> bytes:
    """Data of the form, in format 4.0.0."""
    customer = f"<name>{name}</name><email>{email}</email><notes>{notes}</notes><topics>{topics}</topics>"
    lines = "".join(f"<lines><product>{product}</product></lines>" for product in products)
    return (f"<form><customer>{customer}<status>{status}</status></customer><items>{lines}</items></form>").encode()


D_1 = data("Ada", "ada@example.org", "call back", "red green", "open", ["Pump A", "Valve_9"])
D_2 = data("Bob", "bob@Example.org", "100% sure", "green", "closed", ["valve b"])
D_3 = data("Zoe", topics="reddish blue", status="open", products=[""])
