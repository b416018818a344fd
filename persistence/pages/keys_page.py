"""The page of keys: of callers, for signing, and for encryption; and the actions on them."""

from __future__ import annotations

from dataclasses import dataclass

from flask import render_template, url_for

from persistence.crypto import EncryptionKeys
from persistence.errors import BadRequestError, NotFoundError
from persistence.keys import SCOPES, WITHOUT_KEYS, Keys, distinct_forms, expires_after, require_name
from persistence.model.texts import next_after
from persistence.pages.languages import translated
from persistence.pages.service_pages import KeyUses
from persistence.pages.site import Done, Question, Site, Values

_DAY = 86_400.0
_DATE = 10
_MOST_DIGITS = 5
_NAMED = "The setting administrators names it: it may export, import and purge, and sign in here."
_LIMITED = "The setting administrators names it, but a limited key opens no pages, and stays within its limits."


@dataclass(frozen=True, slots=True)
class KeysPage:
    """The page and its actions. ``administrators`` are the keys that the setting names."""

    keys: Keys
    administrators: frozenset[str]
    uses: KeyUses
    at_rest: EncryptionKeys

    def add_to(self, site: Site) -> None:
        site.page("/admin/keys", "keys", self.show, "Keys")
        site.action("api-key-new", self._new, "name", "days", "scope", "forms")
        site.action("api-key-retire", self._retire, "name")
        site.action("signing-key-new", self._new_signing)
        site.action("signing-key-retire", self._retire_signing, "id")
        site.action("encryption-key-new", self._new_encryption)

    def show(self) -> str:
        ring, made = self.at_rest.ring(), {each.id: each.created for each in self.at_rest.list()}
        return render_template(
            "keys.html",
            keys=self.keys.read(),
            used=self.uses.last(),
            administrators=self.administrators,
            passwords=self.keys.passwords(),
            signing=self.keys.signing(),
            encryption=[(each, made.get(each, ""), each == ring.writing) for each in ring.keys],
            are_given=self.at_rest.are_given,
        )

    def _new(self, values: Values) -> Question:
        name, days = values["name"], values["days"]
        require_name(name, "a key")
        scopes = tuple(each for each in SCOPES if each == values["scope"])
        if values["scope"] and not scopes:
            raise BadRequestError(f"the scope of a key is {' or '.join(SCOPES)}, or none")
        forms = distinct_forms(each for line in values["forms"].splitlines() if (each := line.strip()))
        if days and not (days.isascii() and days.isdecimal() and len(days) <= _MOST_DIGITS):
            raise BadRequestError("days is a number of days")
        lifetime = int(days) * _DAY if days else None
        effects = [translated("The log and the audit call the holder of the new key {name}.", name=name)]
        end = expires_after(next_after(None), lifetime)
        effects.append("It does not expire." if end is None else translated("It expires on {day}.", day=end[:_DATE]))
        if scopes:
            effects.append("It may only read: what it sends changes nothing.")
        if forms:
            of = ", ".join(forms)
            effects.append(translated("It may call for these forms or applications only: {forms}.", forms=of))
        if name in self.administrators:
            effects.append(_LIMITED if scopes or forms else _NAMED)
        if not self.keys.read():
            effects.append("It is the first key: from now on, callers who are not trusted need one.")

        def do(_by: str) -> Done:
            secret = self.keys.add(name, lifetime, scopes, forms)
            return Done(translated("The API key {name} is made", name=name), secret)

        return Question(translated("Make the API key {name}?", name=name), tuple(effects), "Make the key", _back(), do)

    def _retire(self, values: Values) -> Question:
        name, known = values["name"], {key.name: key for key in self.keys.read()}
        if name not in known:
            raise NotFoundError(f"there is no key {name}")
        effects = ["Programs that call with it are refused from now on. It cannot be brought back."]
        if name in self.administrators and not known[name].is_limited:
            effects.append("The setting administrators names it: sessions that it has begun end at once.")
        if known.keys() == {name}:
            effects.append(f"It is the last key: {WITHOUT_KEYS}.")

        def do(_by: str) -> Done:
            self.keys.remove(name)
            return Done(translated("The API key {name} is retired.", name=name))

        title = translated("Retire the API key {name}?", name=name)
        return Question(title, tuple(effects), "Retire the key", _back(), do, is_dangerous=True)

    def _new_signing(self, _values: Values) -> Question:
        effects = (
            "Access tokens are signed with the new key from now on.",
            "Tokens that other keys have signed stay valid until they expire, or until their key is retired.",
        )

        def do(_by: str) -> Done:
            return Done(translated("The key {name} signs access tokens from now on.", name=self.keys.add_signing()))

        return Question("Make a key that signs access tokens?", effects, "Make the key", _back(), do)

    def _retire_signing(self, values: Values) -> Question:
        key_id = values["id"]
        if not any(key.id == key_id for key in self.keys.signing()):
            raise NotFoundError(f"there is no signing key {key_id}")
        effects = ("Access tokens that it has signed are refused from now on.",)

        def do(_by: str) -> Done:
            self.keys.remove_signing(key_id)
            return Done(translated("The signing key {name} is retired.", name=key_id))

        title = translated("Retire the signing key {name}?", name=key_id)
        return Question(title, effects, "Retire the key", _back(), do, is_dangerous=True)

    def _new_encryption(self, _values: Values) -> Question:
        effects = (
            "New data is encrypted with the new key. The keys before it stay, for reading.",
            "The file of these keys must be backed up, apart from the data: without it, what is encrypted is lost.",
        )

        def do(_by: str) -> Done:
            text = "The encryption key {name} is made. Make a copy of its file, and keep it apart."
            return Done(translated(text, name=self.at_rest.new()))

        return Question("Make an encryption key?", effects, "Make the key", _back(), do)


def _back() -> str:
    return url_for("pages.keys")
