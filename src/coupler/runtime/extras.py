"""Imports optional packages and checks their versions, with errors that say how to install them."""

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


def require_methods(kind: type, *names: str, package: str, extra: str) -> None:
    """Raise an error if a class lacks methods that its package does not promise: its version is another."""
    missing = [name for name in names if not hasattr(kind, name)]
    if missing:
        raise MissingExtraError(
            f"{package} {version_of(package)} is not supported, its {kind.__name__} has no {missing[0]}: "
            f'pip install "coupler[{extra}]" installs a version that is'
        )


def version_of(package: str) -> str:
    """Return the version of a package that is installed; `unknown` for one without metadata."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
