"""What routes have in common."""

from __future__ import annotations

from flask.blueprints import BlueprintSetupState


def without_head(state: BlueprintSetupState) -> None:
    """Take away the HEAD that werkzeug adds to every GET of a blueprint: there is none here (spec crud 2.1)."""
    for rule in state.app.url_map.iter_rules():
        if rule.methods is not None and rule.endpoint.startswith(f"{state.name}."):
            rule.methods.discard("HEAD")
