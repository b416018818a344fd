"""Settings: one frozen object from defaults < TOML file < environment < flags. Unknown names are errors."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from persistence.errors import StartupError

DEFAULT_FILE = "config/persistence.toml"
ENVIRONMENT_PREFIX = "PERSISTENCE_"
_FILE_VARIABLE = "PERSISTENCE_CONFIG"

_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_BIND = rf"^(unix:/.+|(\[[0-9a-fA-F:.]+\]|[^:\s/]+):{_PORT})$"
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Bytes = Annotated[int, msgspec.Meta(ge=0)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that can be set; ``docs`` of each are in ``MEANINGS``. Relative paths start where the service does."""

    data: str = "var/data"
    bind: Annotated[str, msgspec.Meta(pattern=_BIND)] = "127.0.0.1:8080"
    dialect: Literal["svc", "orbeon"] = "svc"
    workers: _Positive = 2
    threads: _Positive = 8
    max_body: _Bytes = 1 << 30
    lock_timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    data_format_version: Literal["4.0.0", "4.8.0", "2019.1.0"] = "4.0.0"
    accel_redirect: Annotated[str, msgspec.Meta(pattern="^(/[^/]+)*$")] = ""
    min_free: _Bytes = 64 << 20
    gunicorn: str = "config/gunicorn.conf.py"


MEANINGS: Mapping[str, str] = {
    "data": "directory of the tree of forms",
    "bind": "address and port to serve on, or unix: and a path",
    "dialect": "names on the wire: svc or orbeon",
    "workers": "worker processes",
    "threads": "threads in each worker",
    "max_body": "largest accepted body, in bytes; larger ones are answered 413",
    "lock_timeout": "seconds a writer waits for another on the same document before it answers 503",
    "data_format_version": "format of form data at rest, compared with the parameter data-format-version",
    "accel_redirect": "nginx's internal location for the data directory, such as /protected; empty: none",
    "min_free": "free bytes below which /readyz answers 503",
    "gunicorn": "gunicorn's own settings file, used where it exists",
}


@dataclass(frozen=True, slots=True)
class Effective:
    """Settings in force, and for each name where its value came from."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    file: str | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Effective:
    """Read the settings; ``flags`` holds those given on the command line, ``None`` standing for not given.

    Raises:
        StartupError: a file cannot be read, a name is unknown, or a value is not acceptable.
    """
    variables = os.environ if environment is None else environment
    values: dict[str, object] = {}
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    for origin, layer in (
        _from_file(file or variables.get(_FILE_VARIABLE)),
        ("environment", _from_environment(variables)),
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
    ):
        for name, value in layer.items():
            if name not in origins:
                raise StartupError(f"{origin}: {_unknown(name)}")
            values[name] = _converted(name, value, origin)
            origins[name] = origin
    return Effective(Settings(**values), origins)  # type: ignore[arg-type]  # each was converted to its field's type


def _from_file(path: str | None) -> tuple[str, dict[str, object]]:
    chosen = path or DEFAULT_FILE
    try:
        with open(chosen, "rb") as file:
            return chosen, tomllib.load(file)
    except FileNotFoundError:
        if path is None:
            return chosen, {}
        raise StartupError(f"the settings file {chosen} does not exist") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"the settings file {chosen} cannot be read: {error}") from error


def _from_environment(variables: Mapping[str, str]) -> dict[str, object]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != _FILE_VARIABLE
    }


_FIELDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def _converted(name: str, value: object, origin: str) -> object:
    try:
        # Only the environment has nothing but texts; a file that says workers = "2" is a mistake.
        return msgspec.convert(value, _FIELDS[name], strict=origin != "environment")
    except msgspec.ValidationError as error:
        raise StartupError(f"{origin}: {name} = {value!r} is not acceptable: {error}") from error


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, Settings.__struct_fields__, n=1, cutoff=0)
    return f"unknown setting {name!r}; the nearest valid name is {near[0]!r}"
