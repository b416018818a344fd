"""Form definitions for property tests, in format 2019.1.0: every kind of section and grid, with data that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from hypothesis import strategies as st

from tests.forms.vectors import Form, bind, cell, grid, section, template, use


@dataclass(frozen=True)
class Grid:
    """A grid of some controls; plain, or repeated as often as ``iterations`` says, which are called ``iteration``."""

    controls: int
    iterations: int | None
    iteration: str | None
    is_old: bool


@dataclass(frozen=True)
class Section:
    """A section of grids and sections, or of one section template (``inside`` is ``None``)."""

    inside: tuple[Grid | Section, ...] | None
    iterations: int | None
    iteration: str | None


def forms(*, fewest: int = 0, own_names: bool = True, repeats_in_templates: bool = True) -> st.SearchStrategy[Form]:
    """Forms whose repeats have at least ``fewest`` iterations, called as their author likes if ``own_names``."""
    iterations = st.none() | st.integers(fewest, 3)
    iteration = st.sampled_from([None, "it", "x.y"] if own_names else [None])
    grids = st.builds(Grid, st.integers(0, 3), iterations, iteration, st.booleans())
    templates = st.builds(Section, st.none(), iterations, iteration)
    sections = st.recursive(
        st.builds(Section, st.lists(grids, max_size=3).map(tuple), iterations, iteration) | templates,
        lambda inner: st.builds(Section, st.lists(grids | inner, max_size=3).map(tuple), iterations, iteration),
        max_leaves=6,
    )
    inside = iterations if repeats_in_templates else st.none()
    used = st.lists(st.builds(Grid, st.integers(0, 3), inside, iteration, st.booleans()), max_size=3)
    return st.builds(_form, st.lists(sections, max_size=3), used)


def _form(sections: list[Section], used: list[Grid]) -> Form:
    names = map("u{}".format, count())
    library = _joined(_slots(each, names, "") for each in used)
    names = map("n{}".format, count())
    main = _joined(_slots(each, names, library.data) for each in sections)
    xbl = template("used", library.binds, library.body)
    return Form(f"<form>{main.data}</form>", main.binds, main.body, main.templates, xbl=xbl)


def _joined(parts: Iterable[Form]) -> Form:
    slots = [(each.data, each.binds, each.body, each.templates) for each in parts]
    return Form(*map("".join, zip(*slots, strict=True))) if slots else Form("")


def _slots(part: Grid | Section, names: Iterator[str], used: str) -> Form:
    """The slots of a section or grid; ``used`` is the data of the section template."""
    name = next(names)
    if isinstance(part, Grid):
        inner = _joined(_control(next(names), is_old=part.is_old) for _ in range(part.controls))
    elif part.inside is None:
        inner = Form(used, body=use("used"))
    else:
        inner = _joined(_slots(each, names, used) for each in part.inside)
    view = grid if isinstance(part, Grid) else section
    if part.iterations is None:
        return Form(f"<{name}>{inner.data}</{name}>", bind(name, inner.binds), view(name, inner.body), inner.templates)
    iteration = f"{name}-{part.iteration or 'iteration'}"
    return Form(
        f"<{name}>{f'<{iteration}>{inner.data}</{iteration}>' * part.iterations}</{name}>",
        bind(name, bind(iteration, inner.binds)),
        view(name, inner.body, f""" repeat="content" template="instance('{name}-template')\""""),
        f'<xf:instance id="{name}-template"><{iteration}/></xf:instance>{inner.templates}',
    )


def _control(name: str, *, is_old: bool) -> Form:
    control = cell(name, place=f'x="{name[1:]}"')
    view = control.replace("fr:c", "xh:td") if is_old else control
    return Form(f"<{name}>{name}</{name}>", bind(name, more=' required="true()"'), view)
