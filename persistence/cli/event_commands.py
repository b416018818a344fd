"""``events``: how far events were delivered, and what administrators do about it."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from persistence.cli.declarations import command, exits
from persistence.cli.options import TREES, ChosenTree, TreeChoice, managing, on_each
from persistence.cli.terminal import Facts, json_option, safe, say_result, say_table
from persistence.errors import NotFoundError
from persistence.index.outbox import Outbox
from persistence.model import texts
from persistence.services.changes import OFF, facts_of, targets_of

_CHANGES = ("pause", "resume", "replay", "renew")
_GIVEN_UP = (("NUMBER", "number"), ("TYPE", "type"), ("ABOUT", "about"), ("CAUSE", "cause"))


@command("events", None, TREES, audits=lambda params: any(params.get(each) for each in _CHANGES), has_json=False)
@exits("listed, or changed", "could not: no such target, no events are recorded, no data directory, another user's")
@json_option
@click.option("--pause", metavar="NAME", help="Deliver nothing to this target for now.")
@click.option("--resume", metavar="NAME", help="Go on, at once.")
@click.option("--replay", metavar="NAME", help="Deliver again from the first event on that was given up.")
@click.option("--after", metavar="NUMBER", type=click.IntRange(0), help="With --replay: all events after this one.")
@click.option("--given-up", metavar="NAME", help="List the events that were given up for this target.")
@click.option("--renew", is_flag=True, help="Have those who follow /changes begin anew, after a database was restored.")
def events(*, choice: TreeChoice, after: int | None, **asked: str | bool | None) -> int:
    """List the targets of events, and how far they were delivered.

    The settings name the targets. The service may run: what is changed here applies within a second.

    \b
    persistence events
    persistence events --given-up crm
    persistence events --replay crm --after 1200
    """  # noqa: D301 - click's mark for lines that stay apart
    chosen = [name for name, value in asked.items() if value]
    if len(chosen) > 1:
        raise click.UsageError("of --pause, --resume, --replay, --given-up and --renew there can be one")
    if after is not None and chosen != ["replay"]:
        raise click.UsageError("--after needs --replay")

    def work(tree: ChosenTree, prefix: str) -> int:
        with managing(tree) as place:
            if (outbox := place.provider.outbox) is None:
                raise NotFoundError(OFF)
            if not chosen:
                _list(tree, outbox, prefix)
            else:
                _act(outbox, prefix, chosen[0], str(asked[chosen[0]]), after)
        return 0

    return on_each(choice.trees, work, is_anywhere=bool(chosen))


def _list(tree: ChosenTree, outbox: Outbox, prefix: str) -> None:
    feed = facts_of(outbox)
    first, last = (feed.oldest + 1, feed.newest) if feed.newest > feed.oldest else (None, None)
    kept = "no events" if first is None else f"events {first:,} to {last:,}"
    say_result(
        {"tree": tree.name, "feed": feed.feed, "first": first, "last": last}, f"{prefix}feed {feed.feed}: {kept}"
    )
    targets: list[Facts] = []
    for each in targets_of(outbox):
        due = texts.from_datetime(datetime.fromtimestamp(each.due, UTC)) if each.due and not each.is_paused else None
        facts = {"tree": tree.name, "target": each.name, "delivered": each.delivered, "waiting": each.waiting}
        facts |= {"missed": each.missed, "given_up": len(each.given_up), "attempts": each.attempts, "due": due}
        state = "paused" if each.is_paused else "failed" if each.cause else "in order"
        targets.append({**facts, "state": state, "cause": each.cause.removeprefix("paused: ")})
    say_table(targets, _TARGETS)


def _state(target: Facts) -> str:
    cause, due = target["cause"], target["due"]
    return f"{target['state']}{cause and f': {cause}'}{f'; again at {due}' if due else ''}"


_TARGETS = (
    ("TARGET", "target"),
    ("DELIVERED", "delivered"),
    ("WAITING", "waiting"),
    ("GIVEN UP", "given_up"),
    ("STATE", _state),
)


def _act(outbox: Outbox, prefix: str, action: str, name: str, after: int | None) -> None:
    facts: Facts = {"target": name, "action": action}
    if action == "given_up":
        found = [each._asdict() for target in targets_of(outbox) if target.name == name for each in target.given_up]
        say_table(found, _GIVEN_UP, nothing=f"no event was given up for {safe(name)}")
    elif action == "renew":
        feed = outbox.renew()
        say_result({"action": action, "feed": feed}, f"{prefix}the feed is {feed} now")
    elif action == "replay":
        number = outbox.replay(name, after)
        say_result({**facts, "after": number}, safe(f"{prefix}{name} gets the events after {number:,} again"))
    else:
        outbox.pause(name, is_paused=action == "pause")
        say_result(facts, safe(f"{prefix}{name} is paused" if action == "pause" else f"{prefix}{name} goes on"))
