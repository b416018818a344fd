"""Sidecars changed by hand: as a person leaves them, or sealed again as if the service had written them."""

import json
import shutil
from pathlib import Path

import msgspec

from persistence.model.sidecar import Sidecar
from persistence.storage import stored_revision


def said(path: Path) -> dict[str, object]:
    """What a sidecar says."""
    text: dict[str, object] = json.loads(path.read_text())
    return text


def resealed(path: Path, **changes: object) -> None:
    """Change fields of a sidecar, and seal it for its address; ``None`` leaves a field out."""
    fields = said(path) | changes
    address = str(fields.pop("address"))
    fields.pop("checksum")
    kept = {name: value for name, value in fields.items() if value is not None}
    path.write_bytes(stored_revision.encode(msgspec.convert(kept, Sidecar), address))


def copied(source: Path, target: Path) -> None:
    """Copy the directory of a document, with sidecars that belong to the new one."""
    shutil.copytree(source, target)
    old, new = ("/".join(path.parts[-4:]) for path in (source, target))
    for path in target.rglob("*.json"):
        resealed(path, address=str(said(path)["address"]).replace(old, new, 1))


def of_format_2(path: Path) -> None:
    """Leave a sidecar as the format before wrote it, without checksum and address."""
    kept = {name: value for name, value in said(path).items() if name not in ("address", "checksum")}
    path.write_text(json.dumps(kept | {"schema": 1}, indent=2) + "\n")
