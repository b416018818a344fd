"""Each protection that is taken away is there: a name that has moved would leave the service as it is, unnoticed.

Those of ``_without`` are looked up when the module is imported.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.rigs import weakened


def test_every_name_that_is_replaced_exists() -> None:
    replaced = [
        (target.value.id, target.attr)
        for node in ast.walk(ast.parse(Path(weakened.__file__).read_text()))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id in vars(weakened)
    ]
    assert len(replaced) >= 15
    assert [name for name in replaced if not hasattr(getattr(weakened, name[0]), name[1])] == []
