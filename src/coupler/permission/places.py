"""Recognises the places that no agent may destroy: the root, homes, the system's directories, disks.

A path is compared as written and with its links resolved; one with wildcards, with each place that it may
match.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from coupler.permission.patterns import glob, plain_brackets
from coupler.runtime.paths import is_below

UNKNOWN = "\ue000"
"""Placeholder in a text for what is only known when the shell runs."""
EMPTY = "\ue002"
"""Placeholder for something unknown that may well be empty."""

ROOT = "the root of the file system"
HOME = "a home directory"

_SYSTEM = (
    *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc"),
    *("root", "run", "sbin", "srv", "sys", "usr", "var", "efi", "nix", "snap"),
    *("System", "Library", "Applications", "Users", "Volumes", "private", "cores", "Windows"),
    *(f"usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")),
    *("usr/local", "usr/src", "usr/local/bin", "usr/local/lib"),
    *(f"var/{name}" for name in ("lib", "log", "cache", "db", "spool", "mail", "backups", "run", "root")),
    *("System/Library", "private/var", "private/etc", "nix/store", "Program Files"),
)
_IN_HOMES = (
    *(".ssh", ".gnupg", ".config", ".local", ".local/share", "Documents", "Desktop", "Pictures", "Library"),
)
_HOME_OF_SOMEBODY = re.compile(r"(?:/(?:home|Users)/[^/]+|/root)(?![^/])")
_DRIVE = re.compile(
    r"[A-Za-z]:[\\/]*[*.?]*(?:[\\/]*(?:Windows|Users|Program Files)[\\/]*[*.?]*)?", re.IGNORECASE
)
_WIDE = re.compile(r"(?:[*?._-]|\[[^\]]*\]?|[!@+*?]\([^)]*\))+")
_WILDCARD = re.compile(r"[*?\[]|[!@+]\(")
_ROOT_OF_PROCESS = re.compile(r"/+proc/+[^/]+/+root(?=/|$)|/+proc/+1/+cwd(?=/|$)")
"""Other names of the root, which not every process may follow."""

_DEVICE = re.compile(
    r"/dev/(?:[shv]d[a-z]+\d*|xvd[a-z]+\d*|nvme\d+(?:n\d+(?:p\d+)?)?|mmcblk\d+\w*|r?disk\d+\w*|dm-\d+|md\d+\w*"
    r"|mapper/.+|disk/.+|block/.+|sr\d+|zd\d+|nbd\d+\w*|bcache\d+|pmem\d+\w*|dasd[a-z]+\d*|mtd(?:block)?\d+\w*"
    r"|sg\d+|ubi\w+|k?mem|port|root|cdrom|vg[^/]*/.+)|\\\\[.?]\\physicaldrive\d*",
    re.IGNORECASE,
)
_DEVICE_NAMES = (
    *("sda", "sda1", "sdb", "sdb1", "hda", "vda", "vda1", "xvda", "nvme0", "nvme0n1", "nvme0n1p1", "mmcblk0"),
    *("disk0", "disk1", "rdisk0", "dm-0", "md0", "mem"),
)
_VITAL = re.compile(
    r"/etc/(?:passwd|shadow|group|gshadow|sudoers|fstab|crypttab|ld\.so\.preload|inittab)"
    r"|/proc/(?:sysrq-trigger|kcore)|/(?:boot|efi|sys|etc/sudoers\.d|etc/pam\.d|proc/sys/kernel)(?:/.*)?",
    re.DOTALL,
)
_VITAL_NAMES = (
    *(f"/etc/{name}" for name in ("passwd", "shadow", "group", "gshadow", "sudoers", "fstab", "crypttab")),
    *("/etc/ld.so.preload", "/etc/inittab", "/proc/sysrq-trigger", "/boot", "/efi", "/sys"),
)
"""Such files that a pattern may match."""
_FOLDS = sys.platform in ("darwin", "win32")


class Reading(NamedTuple):
    """One text that a word of a shell's line may become."""

    text: str
    is_pattern: bool = False
    """True if the shell replaces its wildcards."""
    is_bare: bool = False
    """True if it holds only if something unknown is empty."""

    @property
    def is_open(self) -> bool:
        """True if its beginning is unknown, so that nobody can say where it leads."""
        return self.text.startswith(UNKNOWN)


class Places:
    """Tells what a path in one line means: a protected place, the session's own files, or a disk."""

    def __init__(self, roots: Sequence[str], directory: str | None) -> None:
        self.roots = tuple(roots)
        self.directories: list[str] = [directory] if directory is not None else []
        """Directories that relative paths may start from; the last is the current one of the line."""
        self._links: dict[str, str] = {}
        self._mounted: set[str] = set()
        self._known: dict[tuple[object, ...], str | None] = {}

    @cached_property
    def homes(self) -> tuple[str, ...]:
        """The user's home directories."""
        given = [os.path.expanduser("~")]
        with contextlib.suppress(ImportError, KeyError, AttributeError):
            import pwd

            given.append(pwd.getpwuid(os.getuid()).pw_dir)
        whole = (home for path in given for home in (os.path.normpath(path), os.path.realpath(path)))
        return tuple(dict.fromkeys(home for home in whole if os.path.isabs(home) and home != os.sep))

    def whole(self, path: str | Reading) -> str | None:
        """Return a description of the protected place that this path is, or may match; None if it is none."""
        word = _as_reading(path)
        if _DRIVE.fullmatch(word.text) and (
            "\\" in word.text or sys.platform == "win32" or len(word.text) == 2
        ):
            return f"{word.text}, a drive or a directory of the system"
        key = (word.text, word.is_pattern, *self.directories)
        if key not in self._known:
            named = (self._named(each, word.is_pattern) for each in self._paths(word))
            self._known[key] = next((what for what in named if what is not None), None)
        return self._known[key]

    def own(self, word: Reading) -> str | None:
        """Return what this path is of the session's own: all of a directory of the session, or its `.git`."""
        for path in self._paths(word, is_now=True):
            for root in self.roots:
                if _fits(path, root, word.is_pattern):
                    return f"all of {root}"
                # A wildcard means no name with a dot in front, unless the dot is written.
                name = "".join(path.split(os.sep)[root.count(os.sep) + 1 :][:1])
                if _fits(
                    path, f"{root}/.git", word.is_pattern and name.startswith((".", "@(", "+(", "?(", "*("))
                ):
                    return f"the history in {root}/.git"
        return None

    def device(self, path: str | Reading) -> str | None:
        """Return a description of the disk that this path is, if it is one."""
        word = _as_reading(path)
        for each in (word.text, *self._paths(word, is_followed=True)):
            if _DEVICE.fullmatch(each) or _is_block_device(each):
                return f"the disk {word.text}"
            if word.is_pattern and any(_same(f"/dev/{name}", each, True) for name in _DEVICE_NAMES):
                return f"the disks {word.text}"
        return None

    def exists(self, word: Reading) -> bool:
        """True if there is something of this name that may be a link to a disk, or the line may make it."""
        if word.is_pattern or self._links or word.text.startswith(("/dev", "/proc", "\\")):
            return True
        with contextlib.suppress(ValueError):
            return any(
                os.path.lexists(os.path.join(each, word.text)) for each in self.directories or [os.sep]
            )
        return False

    def vital(self, path: str | Reading) -> str | None:
        """Return a description of this path if it is a disk, or a file that the system needs."""
        word = _as_reading(path)
        if (device := self.device(word)) is not None:
            return device
        for each in self._paths(word, is_followed=True):
            if _VITAL.fullmatch(each):
                return f"{each}, which the system needs"
            if word.is_pattern and (
                name := next((name for name in _VITAL_NAMES if _same(name, each, True)), "")
            ):
                return f"{name}, which the system needs"
        return None

    def is_in_home(self, word: Reading) -> bool:
        """True if this path is a home or in one, wherever it leads."""
        return all(
            any(is_below(path, home) for home in self.homes) or _HOME_OF_SOMEBODY.match(path) is not None
            for path in self._paths(word, is_followed=True)
        )

    def enter(self, text: str) -> None:
        """Note that the line changes to this directory."""
        place = self._joined(text)
        now = self._behind_link(place, is_followed=True) or place
        self.directories.append(now if UNKNOWN not in text else UNKNOWN)

    def link(self, source: str, name: str = "", *, is_mounted: bool = False) -> None:
        """Note a link or mount that the line makes, as `ln -s / x` does: paths through it lead elsewhere."""
        name = self._joined(name or os.path.basename(source))
        if source and name not in self._protected:
            self._links[name] = _plain(os.path.join(os.path.dirname(name), source))
            self._mounted |= {name} if is_mounted else set()
            self._known.clear()

    @property
    def is_lost(self) -> bool:
        """True if the current directory is unknown."""
        return not self.directories or UNKNOWN in self.directories[-1]

    def _named(self, path: str, is_pattern: bool) -> str | None:
        if not is_pattern and not _FOLDS:
            return (
                f"{path}, {self._protected[path]}" if path in self._protected else self._usually_named(path)
            )
        for place, what in self._protected.items():
            if _fits(path, place, is_pattern):
                return f"{place}, {what}"
        return self._usually_named(_without_wide(path) if is_pattern else path)

    def _usually_named(self, bare: str) -> str | None:
        """Describe a path that is a home or a directory in `/etc`, unless it is one of the session's."""
        if bare in self.roots:
            return None
        if _HOME_OF_SOMEBODY.fullmatch(bare):
            return f"{bare}, {HOME}"
        if os.path.dirname(bare) == "/etc" and os.path.isdir(bare):
            return f"{bare}, a directory of the system"
        return None

    @cached_property
    def _protected(self) -> dict[str, str]:
        """Descriptions of the protected places, by path, without the session's own directories."""
        found = {f"/{name}": "a directory of the system" for name in _SYSTEM}
        for home in self.homes:
            found |= dict.fromkeys(_above(home), "a directory above a home")
            found |= {f"{home}/{name}": "a directory of its user's own" for name in _IN_HOMES}
            found[home] = HOME
        for root in self.roots:
            found |= {above: found.get(above, "a directory above the session's") for above in _above(root)}
        found[os.sep] = ROOT
        # The session's own are another matter, unless they are all that there is.
        own = {root for root in self.roots if root != os.sep and root not in self.homes}
        return {place: what for place, what in found.items() if place not in own}

    def _paths(self, word: Reading, *, is_now: bool = False, is_followed: bool = False) -> Iterator[str]:
        """Yield the absolute paths that a word may mean, as written and with links resolved.

        `is_followed` says that a link at its end is followed, as it is by whoever writes to it.
        """
        text = word.text
        if not text or "\0" in text:
            return
        for directory in self.directories[-1:] if is_now else self.directories or [os.sep]:
            joined = os.path.join(directory, text)
            if UNKNOWN in directory and not os.path.isabs(text):
                continue
            head, tail = _split_at_wildcard(joined) if word.is_pattern else (joined, "")
            yield _plain(joined)
            is_behind = is_followed or text.endswith(("/", "/."))
            if (linked := self._behind_link(_plain(joined), is_followed=is_behind)) is not None:
                yield linked
            with contextlib.suppress(OSError, ValueError):
                yield _plain(os.path.join(os.path.realpath(head), tail))
            if (root := _ROOT_OF_PROCESS.match(joined)) is not None:
                yield _plain(os.sep + joined[root.end() :])

    def _joined(self, text: str) -> str:
        return _plain(os.path.join(*(self.directories[-1:] or [os.sep]), text))

    def _behind_link(self, path: str, *, is_followed: bool) -> str | None:
        """Return where a path leads by a link or mount that the line has made, if it does."""
        for name, source in self._links.items():
            if path.startswith(f"{name}{os.sep}"):
                return _plain(source + path[len(name) :])
            if path == name and (is_followed or name in self._mounted):
                return source
        return None


def _as_reading(path: str | Reading) -> Reading:
    return path if isinstance(path, Reading) else Reading(path)


def _plain(path: str) -> str:
    plain = os.path.normpath(path)
    return plain[1:] if plain.startswith("//") else plain


def _fits(path: str, place: str, is_pattern: bool) -> bool:
    """True if a path is the place, or as a pattern may match it or all that is in it."""
    if not is_pattern:
        return _same(place, path, False)
    return _same(place, path, True) or _same(place, _without_wide(path), True)


def _same(place: str, path: str, is_pattern: bool) -> bool:
    if _FOLDS:
        place, path = place.casefold(), path.casefold()
    if place == path:
        return True
    parts, pieces = place.split(os.sep), path.split(os.sep)
    return (
        is_pattern
        and len(parts) == len(pieces)
        and all(glob(_as_glob(piece)).match(part) for part, piece in zip(parts, pieces, strict=True))
    )


def _as_glob(piece: str) -> str:
    """Convert a piece of a path to a pattern in which what is in `@(…)` may be anything."""
    return re.sub(r"[!@+*?]\([^)]*\)", "*", piece)


def _without_wide(path: str) -> str:
    """Return a path without the last names that match everything: `/usr` for `/usr/*`."""
    while path != os.sep and _is_wide(os.path.basename(path)):
        path = os.path.dirname(path)
    return path


def _is_wide(name: str) -> bool:
    return _WILDCARD.search(name) is not None and _WIDE.fullmatch(plain_brackets(name)) is not None


def _split_at_wildcard(path: str) -> tuple[str, str]:
    names = path.split(os.sep)
    at = next((place for place, name in enumerate(names) if _WILDCARD.search(name)), len(names))
    return os.sep.join(names[:at]) or os.sep, os.sep.join(names[at:])


def _above(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _is_block_device(path: str) -> bool:
    try:
        return os.path.isabs(path) and stat.S_ISBLK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
