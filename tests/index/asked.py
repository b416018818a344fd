"""Documents and searches at random, from texts that are awkward for an index."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from persistence.model.permissions import OwnerPattern, OwnerSet
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Query,
    Scope,
    Sort,
    TextMatch,
    VisibleOwners,
)
from persistence.model.texts import Instant
from tests.index.memory import Content

PATHS = ("a", "s/b", "s/r/c", 'x[@id = "q"]/*', "never/indexed")
"""Of controls; the last one is in no definition."""

DOCUMENTS = tuple(f"d{number}" for number in range(9))

_PIECES = (
    *("a", "A", "b", "ab", "ABC", "abc", "x y", "red green", "0", "12", "007", "-1"),
    *("ß", "SS", "ss", "İ", "i", "i\u0307", "\u0131", "ﬁ", "fi", "Σ", "ς", "é", "e\u0301", "ǰ"),
    *("中文", "\U0010fffd", "\U0001f600"),
    *("%", "_", "\\", "*", "'", '"', "''", '""', "(", ")", "^", ":", "+", "-", "{", "}", " AND ", " OR ", "NEAR", "?"),
    *(" ", "  ", "\t", "\n", "\u00a0", "\ufeff", "\ue000", "\ufffd"),
)
_LONG = ("k" * 198, "k" * 199, "k" * 200, "k" * 201, "K" * 260, "ß" * 120, "lorem ipsum " * 30)

LONG_ONES = PATHS[0]
"""The control that has long values, too: what is equal in 200 characters has no order of its own."""

short = st.one_of(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5).map("".join),
    st.text(st.characters(min_codepoint=32, blacklist_categories=("Cs",)), min_size=1, max_size=6),
)
long = st.tuples(st.sampled_from(_LONG), st.sampled_from(_PIECES)).map("".join)
texts = st.one_of(short, short, long)
"""Values that XML can have and that are not empty."""

_names = st.sampled_from((None, "ann", "bob", "Ann", "ß", "o'neil"))
_groups = st.sampled_from((None, "sales", "Sales", "a b"))
_organizations = st.sampled_from(((), ("acme",), ("acme", "east"), ("west", "acme")))
_stages = st.sampled_from((None, "open", "Open", "done "))


def instant(number: int) -> Instant:
    """The instant of a number, in milliseconds."""
    return Instant(f"2024-05-{1 + number // 86_400_000 % 28:02}T{_clock(number % 86_400_000)}Z")


def _clock(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:03}"


_days = st.builds("2024-0{}-1{}".format, st.integers(4, 6), st.integers(0, 3))
typed = st.one_of(
    _days,
    st.builds("{}T{:02}:00:00{}".format, _days, st.integers(0, 23), st.sampled_from(("", "Z", "+09:00"))),
    st.decimals(-200, 200, places=2).map("{:f}".format),
    st.sampled_from(("0", "-0.0", "007", "1234567890123456789012345678901.5", "2024-02-30")),
)
"""Values of controls that have a type, by chance of theirs."""

values = st.fixed_dictionaries(
    {},
    optional={
        path: st.lists(
            texts if path == LONG_ONES else st.one_of(short, typed) if path in PATHS[1:3] else short,
            min_size=1,
            max_size=3,
        ).map(tuple)
        for path in PATHS
    },
)

contents = st.builds(
    Content,
    version=st.sampled_from((1, 1, 2, 3)),
    created=st.integers(0, 30).map(lambda number: instant(number * 400)),
    modified=st.just(instant(0)),
    creator=_names,
    group=_groups,
    organization=_organizations,
    modifier=_names,
    stage=_stages,
    values=values,
)
"""What may be saved; when, whoever saves it decides."""


def at(content: Content, number: int) -> Content:
    """A content, saved as the one of that number: no two are saved at once."""
    return msgspec.structs.replace(content, modified=instant(number * 400 + 20_000))


@st.composite
def needles(draw: st.DrawFn, known: tuple[str, ...]) -> str:
    """A text to look for: mostly a part of a known one, perhaps in another case."""
    text = draw(st.sampled_from(known)) if known and draw(st.integers(0, 9)) else draw(texts)
    begin = draw(st.integers(0, len(text) - 1))
    length = draw(st.sampled_from((1, 2, 3, 4, 7, 300)))
    part = text if draw(st.booleans()) else text[begin : begin + length]
    part = draw(st.sampled_from((part, part, part.upper(), part.lower(), part.casefold())))
    return part.strip() or "a"


_drafts = st.one_of(
    st.sampled_from([DraftFilter(kind) for kind in Drafts]),
    st.just(DraftFilter(Drafts.ONLY, never_saved=True)),
    st.sampled_from(DOCUMENTS).map(lambda document: DraftFilter(Drafts.ONLY, for_document=document)),
)
_bound = st.lists(
    st.sampled_from((frozenset({"acme"}), frozenset({"west", "paris"}), frozenset({"acme", *"abcdefghij"}))), max_size=2
).map(tuple)
_holders = st.builds(OwnerPattern, creator=_names, group=_groups, organizations=_bound).filter(OwnerPattern().__ne__)
_sights = st.frozensets(st.builds(OwnerSet, st.frozensets(_holders, max_size=3)), max_size=2)


@st.composite
def _seen(draw: st.DrawFn) -> VisibleOwners:
    """Mostly the same in all versions, and everything in half of them."""
    everywhere = draw(st.one_of(st.just(frozenset[OwnerSet]()), _sights))
    by_version = draw(st.one_of(st.just({}), st.dictionaries(st.integers(1, 3), _sights)))
    return VisibleOwners(lambda version: by_version.get(version, everywhere), is_by_saved=draw(st.booleans()))


scopes = st.builds(
    Scope, versions=st.sampled_from((None, None, (1,), (2,), (1, 3), (9,))), drafts=_drafts, seen=_seen()
)


def _or(condition: ControlFilter | FieldFilter, name: str) -> ControlFilter | FieldFilter:
    return replace(condition, alternative=name)


@st.composite
def queries(draw: st.DrawFn, known: tuple[str, ...]) -> Query:
    text = needles(known)
    controls = st.builds(ControlFilter, path=st.sampled_from(PATHS), match=st.sampled_from(TextMatch), text=text)
    typed_paths, one = st.sampled_from(PATHS[1:3]), st.sampled_from((*TextMatch,)[3:-1])
    ranges = st.one_of(
        st.builds(ControlFilter, path=typed_paths, match=one, text=typed),
        st.builds(ControlFilter, typed_paths, st.just(TextMatch.BETWEEN), st.builds("{} {}".format, typed, typed)),
    )
    times = st.builds(
        FieldFilter,
        field=st.sampled_from((Field.CREATED, Field.LAST_MODIFIED)),
        comparison=st.sampled_from((Comparison.GTE, Comparison.LT)),
        value=st.integers(0, 100).map(lambda number: instant(number * 400)),
    )
    facts = st.builds(
        FieldFilter,
        field=st.sampled_from((Field.CREATED_BY, Field.LAST_MODIFIED_BY, Field.WORKFLOW_STAGE)),
        comparison=st.just(Comparison.EXACT),
        value=st.sampled_from(("ann", "Ann", "open", "Open", "ß", "nobody")),
    )
    name, sorting = st.sampled_from(("", "", "one", "other")), st.sampled_from((*Field,)[:-1])
    return draw(
        st.builds(
            Query,
            text=st.one_of(st.just(""), text),
            controls=st.lists(st.builds(_or, st.one_of(controls, ranges), name), max_size=3).map(tuple),
            fields=st.lists(st.builds(_or, st.one_of(times, facts), name), max_size=2).map(tuple),
            sort=st.builds(Sort, by=st.one_of(sorting, st.sampled_from(PATHS[1:])), is_descending=st.booleans()),
            offset=st.sampled_from((0, 0, 0, 1, 2, 3, 7, 10**18)),
            size=st.sampled_from((1, 2, 3, 10, 10**18)),
        )
    )
