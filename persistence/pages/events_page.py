"""The page of events: how far they were delivered to each target, and the actions on targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from flask import render_template, url_for

from persistence.errors import BadRequestError, NotFoundError
from persistence.pages.languages import translated
from persistence.pages.site import Action, Done, Question, Site, Values
from persistence.services.changes import ChangeFeed
from persistence.settings import Webhook

_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class EventsPage:
    """The page and its actions. ``webhooks`` are those of the settings."""

    feed: ChangeFeed
    webhooks: Mapping[str, Webhook]

    def add_to(self, site: Site) -> None:
        site.page("/admin/events", "events", self.show, "Events")
        for name, is_paused in (("events-pause", True), ("events-resume", False)):
            ask, change = partial(self._ask, is_paused=is_paused), partial(self._change, is_paused=is_paused)
            site.action(Action(name, ask, change, ("datasource", "target")))
        site.action(Action("events-replay", self._ask_to_replay, self._replay, ("datasource", "target", "after")))

    def show(self) -> str:
        places = [(name, self.feed.facts(name), self.feed.targets(name)) for name in self.feed.datasources]
        return render_template("events.html", places=places, webhooks=self.webhooks)

    def _ask(self, values: Values, *, is_paused: bool) -> Question:
        name = self._target(values)
        title = translated(
            "Pause the delivery to {name}?" if is_paused else "Go on with the delivery to {name}?", name=name
        )
        effect = "Events are kept until they are too old." if is_paused else "The next event is delivered at once."
        return Question(title, (effect,), "Pause" if is_paused else "Go on", _back())

    def _change(self, values: Values, _by: str, *, is_paused: bool) -> Done:
        name = self._target(values)
        self.feed.outbox(values["datasource"]).pause(name, is_paused=is_paused)
        done = translated(
            "The delivery to {name} is paused." if is_paused else "The delivery to {name} goes on.", name=name
        )
        return Done(done, _back())

    def _ask_to_replay(self, values: Values) -> Question:
        name, after = self._target(values), _after(values)
        effect = "It gets the events again from the first one on that was given up, in order."
        if after is not None:
            effect = translated("It gets all events after number {number} again, in order.", number=after)
        title = translated("Deliver events to {name} again?", name=name)
        return Question(title, (effect,), "Deliver again", _back())

    def _replay(self, values: Values, _by: str) -> Done:
        name = self._target(values)
        outbox = self.feed.outbox(values["datasource"])
        number = outbox.replay(name, _after(values))
        text = translated("{name} gets the events after number {number} again.", name=name, number=number)
        return Done(text, _back())

    def _target(self, values: Values) -> str:
        if all(each.name != values["target"] for each in self.feed.targets(values["datasource"])):
            raise NotFoundError(f"nothing was delivered to {values['target']} yet")
        return values["target"]


def _after(values: Values) -> int | None:
    text = values["after"]
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise BadRequestError("the number of an event is a whole number")
    return int(text) if text else None


def _back() -> str:
    return url_for("pages.events")
