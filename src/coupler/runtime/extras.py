"""Imports optional packages, with an error that says how to install them."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """A feature was used whose packages are not installed."""


def import_extra(module: str, *, extra: str, feature: str) -> ModuleType:
    """Import a module that belongs to an extra, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is there, but something it needs is broken
        raise MissingExtraError(f'{feature} needs more packages: pip install "coupler[{extra}]"') from None
