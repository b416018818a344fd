"""Form definitions for property tests, in format 2019.1.0: every kind of section and grid, with data that fits."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.forms.vectors import COMPONENT, META_2019, Form, bind, cell, grid, section


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
    count = st.none() | st.integers(fewest, 3)
    iteration = st.sampled_from([None, "it", "x.y"] if own_names else [None])
    grids = st.builds(Grid, st.integers(0, 3), count, iteration, st.booleans())
    templates = st.builds(Section, st.none(), count, iteration)
    sections = st.recursive(
        st.builds(Section, st.lists(grids, max_size=3).map(tuple), count, iteration) | templates,
        lambda inner: st.builds(Section, st.lists(grids | inner, max_size=3).map(tuple), count, iteration),
        max_leaves=6,
    )
    inside = count if repeats_in_templates else st.none()
    used = st.lists(st.builds(Grid, st.integers(0, 3), inside, iteration, st.booleans()), max_size=3)
    return st.builds(_form, st.lists(sections, max_size=3), used)


def _form(sections: list[Section], used: list[Grid]) -> Form:
    library = _Parts("u")
    for each in used:
        library.add(each)
    main = _Parts("n", library.data)
    for outer in sections:
        main.add(outer)
    return Form(
        f"<form>{main.data}</form>",
        main.binds,
        main.body,
        main.templates,
        META_2019,
        f"""<xbl:xbl><xbl:binding class="fr-section-component" element="component|used" xmlns:component="{COMPONENT}">
              <xbl:implementation><xf:model><xf:bind id="fr-form-binds">{library.binds}</xf:bind></xf:model>
              </xbl:implementation><xbl:template><xf:group>{library.body}</xf:group></xbl:template></xbl:binding></xbl:xbl>""",
    )


@dataclass
class _Parts:
    """The slots of a form, as they grow."""

    prefix: str
    used: str = ""
    data: str = ""
    binds: str = ""
    body: str = ""
    templates: str = ""
    named: list[str] = field(default_factory=list)

    def add(self, part: Grid | Section) -> None:
        name = self._name()
        inner = _Parts(self.prefix, self.used, named=self.named)
        if isinstance(part, Grid):
            inner._add_controls(part)
        elif part.inside is None:
            inner.data = self.used
            inner.body = f'<component:used xmlns:component="{COMPONENT}"/>'
        else:
            for each in part.inside:
                inner.add(each)
        self._wrap(part, name, inner)

    def _wrap(self, part: Grid | Section, name: str, inner: _Parts) -> None:
        iteration = f"{name}-{part.iteration or 'iteration'}"
        view = grid if isinstance(part, Grid) else section
        if part.iterations is None:
            self.data += f"<{name}>{inner.data}</{name}>"
            self.binds += bind(name, inner.binds)
            self.body += view(name, inner.body)
        else:
            each = f"<{iteration}>{inner.data}</{iteration}>"
            self.data += f"<{name}>{each * part.iterations}</{name}>"
            self.binds += bind(name, bind(iteration, inner.binds))
            self.body += view(name, inner.body, f""" repeat="content" template="instance('{name}-template')\"""")
            self.templates += f'<xf:instance id="{name}-template"><{iteration}/></xf:instance>'
        self.templates += inner.templates

    def _add_controls(self, part: Grid) -> None:
        for _ in range(part.controls):
            name = self._name()
            self.data += f"<{name}>{len(self.named)}</{name}>"
            self.binds += bind(name, more=' required="true()"')
            control = cell(name, place=f'x="{len(self.named)}"')
            self.body += control.replace("fr:c", "xh:td") if part.is_old else control

    def _name(self) -> str:
        self.named.append(f"{self.prefix}{len(self.named)}")
        return self.named[-1]
