"""Calls in the place of those of the service: they refuse, or end whoever makes them."""

import errno
import os
from collections.abc import Callable
from typing import NoReturn


def refusing(code: int = errno.EIO) -> Callable[..., NoReturn]:
    """A call that is refused, as by a disk."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return refuse


def ending(
    calls: int, real: Callable[..., object], error: BaseException | type[BaseException] = KeyboardInterrupt
) -> Callable[..., object]:
    """The call, until it has been made so often; then an error each time, as if the process had been killed there."""
    left = [calls]

    def call(*arguments: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise error
        return real(*arguments)

    return call
