"""Why a turn's file was not read or written."""

from __future__ import annotations


class OutsideRootsError(PermissionError):
    """The file is not, or not for sure, in one of the session's directories."""


class FileChangedError(RuntimeError):
    """Somebody would lose what they wrote: the file is not as the session knows it."""


class UnsuitableFileError(ValueError):
    """It is no text, too large, or not a file of the ordinary kind."""
