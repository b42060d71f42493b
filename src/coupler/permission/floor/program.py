"""Programs that destroy files: what they are given, and whether that is more than anybody allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from coupler.permission.floor.arguments import Arguments
from coupler.permission.floor.disk import DISK_PROGRAMS
from coupler.permission.floor.expansion import Reading
from coupler.permission.floor.finding import Finding
from coupler.permission.floor.place import Places

Judge: TypeAlias = Callable[[Arguments, Places], Finding | None]


_OVERWRITING = ("tee", "truncate", "gtruncate", "fallocate", "sponge")


def _whole(operand: Reading, places: Places) -> str | None:
    return places.whole(operand.text, is_pattern=operand.is_pattern)


def _own(operand: Reading, places: Places) -> str | None:
    return places.own(operand.text, is_pattern=operand.is_pattern)


def _vital(operand: Reading | None, places: Places) -> str | None:
    return None if operand is None else places.vital(operand.text, is_pattern=operand.is_pattern)


def deletes(given: Arguments, places: Places) -> Finding | None:
    """`rm` and the like: all operands are lost."""
    for operand in given.operands:
        if (lost := _whole(operand, places) or _vital(operand, places)) is not None:
            return Finding(f"would delete {lost}")
    if given.has("rR", "recursive") or given.is_unclear:
        return _may_delete(given, places)
    return None


def _may_delete(given: Arguments, places: Places) -> Finding | None:
    for operand in given.operands:
        if (lost := _own(operand, places)) is not None:
            return Finding(f"would delete {lost}", is_fatal=False)
    is_relative = any(not operand.text.startswith("/") for operand in given.operands)
    if any(operand.is_open for operand in given.operands) or (is_relative and places.is_lost):
        return Finding("deletes directories that are only known when it runs", is_fatal=False)
    return None


def _deletes_all(given: Arguments, places: Places) -> Finding | None:
    """Programs that take directories without an option for it."""
    return deletes(Arguments([Reading("-r"), *given.words]), places)


def _deletes_on_windows(given: Arguments, places: Places) -> Finding | None:
    operands = [word for word in given.words if not re.fullmatch(r"/[a-zA-Z](?::.*)?|-.*", word.text)]
    return deletes(Arguments([Reading("-r"), *operands]), places)


def _overwrites(given: Arguments, places: Places) -> Finding | None:
    """`tee`, `truncate`, `shred`: all operands are written to."""
    for operand in given.operands:
        if (lost := _vital(operand, places)) is not None:
            return Finding(f"would overwrite {lost}")
    return None


def _shreds(given: Arguments, places: Places) -> Finding | None:
    return _overwrites(given, places) or deletes(given, places)


def _copies(given: Arguments, places: Places) -> Finding | None:
    """`cp`, `install`, `ln`: what is at the end of the way is lost."""
    target = given.value("-t", "--target-directory") or (given.operands[-1] if given.operands else None)
    if (lost := _vital(target, places)) is not None:
        return Finding(f"would overwrite {lost}")
    return None


def _moves(given: Arguments, places: Places) -> Finding | None:
    target = given.value("-t", "--target-directory")
    sources = given.operands if target is not None else given.operands[:-1]
    for source in sources:
        if (lost := _whole(source, places) or _vital(source, places)) is not None:
            return Finding(f"would move away {lost}")
    if (finding := _copies(given, places)) is not None:
        return finding
    for source in sources:
        if (lost := _own(source, places)) is not None:
            return Finding(f"would move away {lost}", is_fatal=False)
    return None


def _changes_rights(given: Arguments, places: Places) -> Finding | None:
    """`chmod`, `chown` and the like: of whole trees, or of the root and the system's directories."""
    is_deep = given.has("R", "recursive")
    for operand in given.operands:
        lost = _whole(operand, places)
        if lost is not None and (is_deep or given.is_unclear or "home" not in lost):
            return Finding(f"would change the rights of {lost}")
        if lost is None and (lost := _vital(operand, places)) is not None and "/dev/" not in lost:
            return Finding(f"would change the rights of {lost}")
    if is_deep and any(operand.is_open for operand in given.operands[1:]):
        return Finding("changes the rights of directories that are only known when it runs", is_fatal=False)
    return None


def _downloads(*options: str) -> Judge:
    def judge(given: Arguments, places: Places) -> Finding | None:
        lost = _vital(given.value(*options), places)
        return None if lost is None else Finding(f"would overwrite {lost}")

    return judge


def _synchronises(given: Arguments, places: Places) -> Finding | None:
    """`rsync`: with some options what is at the end of the way, or at its beginning, is deleted."""
    *sources, target = given.operands or [Reading("")]
    if (lost := _vital(target, places)) is not None:
        return Finding(f"would overwrite {lost}")
    deleted = [target] if any(option.startswith("--del") for option in given.options) else []
    deleted += sources if given.has("", "remove-source-files") else []
    return deletes(Arguments([Reading("-r"), *deleted]), places) if deleted else None


def _archives(given: Arguments, places: Places) -> Finding | None:
    is_removing = given.has("", "remove-files") or (given.has("m") and given.has("r"))
    return _deletes_all(Arguments(given.operands), places) if is_removing else None


def _cleans(given: Arguments, places: Places) -> Finding | None:
    """`git clean` in a directory that is no repository of the session's."""
    if not any(word.text == "clean" for word in given.words):
        return None
    place = given.value("-C") or given.value("--work-tree") or Reading(".")
    if given.has("f", "force") and (lost := _whole(place, places)) is not None:
        return Finding(f"would delete what is in {lost}")
    if place.is_open or places.is_lost:
        return Finding("deletes what is in a directory that is only known when it runs", is_fatal=False)
    return None


_WIDE_VALUES = re.compile(r"[*?./]*")
_TESTS = re.compile(
    r"-(?:i?name|i?path|i?wholename|i?regex|newer.*|[acm](?:time|min)|size|empty|links|inum|samefile|nogroup"
    r"|nouser|uid|gid|used|lname|ilname)"
)
FIND_STARTS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def find_starts(words: list[Reading]) -> tuple[list[Reading], bool]:
    """Where `find` begins, and whether it looks for something less than all."""
    texts = [word.text for word in words]
    leading = 0
    while leading < len(texts) and re.fullmatch(r"-[HLP]|-O\d|-D.*", texts[leading]):
        leading += 1
    end = next(
        (at for at in range(leading, len(texts)) if texts[at].startswith(("-", "(", "!", "\\"))), len(texts)
    )
    starts = words[leading:end] or [Reading(".")]
    if {"-L", "-H"} & {*texts[:leading]}:
        starts = [start._replace(text=f"{start.text}/") for start in starts]
    is_narrow = any(
        _TESTS.fullmatch(text)
        and (at == 0 or texts[at - 1] not in {"!", "-not", "-o", "-or"})
        and not (at + 1 < len(texts) and _WIDE_VALUES.fullmatch(texts[at + 1]) and texts[at + 1])
        for at, text in enumerate(texts)
    ) and not {"-o", "-or"} & {*texts}
    return starts, is_narrow


def overwrites_found(name: str, words: Sequence[Reading], start: Reading, places: Places) -> Finding | None:
    """What `find … -exec` overwrites: everything, if what it finds is where this program writes to."""
    texts = [word.text for word in words]
    is_target = (
        (name in _OVERWRITING and "{}" in texts)
        or (name in {"cp", "mv", "install"} and texts[-1:] == ["{}"])
        or (name == "dd" and "of={}" in texts)
    )
    lost = _whole(start, places) if is_target else None
    return None if lost is None else Finding(f"would overwrite what is in {lost}")


def _finds(given: Arguments, places: Places) -> Finding | None:
    """`find … -delete`; what it starts is judged by itself."""
    starts, is_narrow = find_starts(given.words)
    if not any(word.text == "-delete" for word in given.words):
        return None
    finding = _deletes_all(Arguments(starts), places)
    if finding is not None and finding.is_fatal and is_narrow:
        return finding._replace(
            reason=finding.reason.replace("would delete", "would delete in"), is_fatal=False
        )
    return finding if finding is not None and not (is_narrow and not finding.is_fatal) else None


def _edits_in_place(given: Arguments, places: Places) -> Finding | None:
    return _overwrites(given, places) if given.has("i", "in-place") else None


def _unpacks(given: Arguments, places: Places) -> Finding | None:
    target = given.value("-d", "-C", "--directory")
    lost = _vital(target, places)
    return Finding(f"would overwrite {lost}") if lost is not None else _archives(given, places)


def _deletes_by(command: str) -> Judge:
    """A program that deletes what it is given, if one of its words says so."""
    shape = re.compile(command)

    def judge(given: Arguments, places: Places) -> Finding | None:
        is_told = any(shape.fullmatch(word.text) for word in given.words)
        return _deletes_all(Arguments(given.operands), places) if is_told else None

    return judge


def _removes_user(given: Arguments, places: Places) -> Finding | None:
    if given.has("r", "remove", "remove-home", "remove-all-files"):
        return Finding("would delete a user with the home directory")
    return None


PROGRAMS: dict[str, Judge] = {
    **dict.fromkeys(("rm", "grm", "unlink"), deletes),
    **dict.fromkeys(("rimraf", "trash", "trash-put", "del-cli", "srm", "wipe"), _deletes_all),
    **dict.fromkeys(("rd", "rmdir", "del", "erase", "remove-item", "ri"), _deletes_on_windows),
    **dict.fromkeys(("shred", "gshred"), _shreds),
    **dict.fromkeys(_OVERWRITING, _overwrites),
    "curl": _downloads("-o", "--output"),
    "wget": _downloads("-O", "--output-document"),
    **dict.fromkeys(("cp", "gcp", "install", "ln", "scp"), _copies),
    **dict.fromkeys(("mv", "gmv"), _moves),
    **dict.fromkeys(
        ("chmod", "chown", "chgrp", "gchmod", "gchown", "chattr", "setfacl", "chcon", "chflags", "xattr"),
        _changes_rights,
    ),
    "btrfs": _deletes_by("delete"),
    "gio": _deletes_by("trash|remove"),
    "rclone": _deletes_by("purge|delete|deletefile|rmdirs|sync|move|cleanup"),
    **dict.fromkeys(("7z", "7za", "7zz"), _deletes_by("-sdel")),
    "cmake": _deletes_by("rm|remove_directory"),
    "rsync": _synchronises,
    "zip": _archives,
    **dict.fromkeys(("tar", "gtar", "bsdtar", "unzip"), _unpacks),
    **dict.fromkeys(("sed", "gsed"), _edits_in_place),
    "git": _cleans,
    **dict.fromkeys(("find", "gfind"), _finds),
    **dict.fromkeys(("userdel", "deluser"), _removes_user),
    **DISK_PROGRAMS,
}
"""What is known, by the program's name."""
