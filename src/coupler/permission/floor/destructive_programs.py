"""Judges programs that destroy files, write disks or end processes, and code that does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from coupler.permission.floor.expansion import Reading
from coupler.permission.floor.places import Places


class Arguments:
    """Splits a program's words, in one reading, into options and operands; options may stand anywhere."""

    def __init__(self, words: Sequence[Reading]) -> None:
        self.words = [*words]
        self.operands: list[Reading] = []
        self.options: list[str] = []
        is_over = False
        for word in words:
            if not is_over and word.text == "--":
                is_over = True
            elif not is_over and re.match(r"-.", word.text):
                self.options.append(word.text)
            else:
                self.operands.append(word)
        self.is_unclear = any(word.is_open for word in words)
        """True if the beginning of a word is unknown, so that it may be any option."""

    def has(self, letters: str, *names: str) -> bool:
        """True if one of these options is given: a letter, or a long name, which may be abbreviated."""
        for option in self.options:
            if option.startswith("--"):
                given = option[2:].partition("=")[0]
                if given and any(name.startswith(given) for name in names):
                    return True
            elif any(letter in option[1:] for letter in letters):
                return True
        return False

    def value(self, *names: str) -> Reading | None:
        """Return the value of an option: `--name=value`, `--name value`, `-nvalue` or `-n value`."""
        for place, word in enumerate(self.words):
            for name in names:
                if word.text == name and place + 1 < len(self.words):
                    return self.words[place + 1]
                joined = f"{name}=" if name.startswith("--") else name
                if word.text.startswith(joined) and len(word.text) > len(joined):
                    return word._replace(text=word.text[len(joined) :])
        return None


class Finding(NamedTuple):
    """A reason to deny a command, or to ask about it whatever is allowed."""

    reason: str
    """The harm, as the rest of a sentence that begins with "the command"."""
    is_fatal: bool = True
    """True if the command is denied; otherwise it may be legitimate, and is asked about."""


Judge: TypeAlias = Callable[[Arguments, Places], Finding | None]

_OVERWRITING = ("tee", "truncate", "gtruncate", "fallocate", "sponge")


def _whole(operand: Reading, places: Places) -> str | None:
    return places.whole(operand.text, is_pattern=operand.is_pattern)


def _own(operand: Reading, places: Places) -> str | None:
    return places.own(operand.text, is_pattern=operand.is_pattern)


def _vital(operand: Reading | None, places: Places) -> str | None:
    return None if operand is None else places.vital(operand.text, is_pattern=operand.is_pattern)


def deletes(given: Arguments, places: Places) -> Finding | None:
    """Judge `rm` and similar programs, which delete all of their operands."""
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
    """Judge programs that delete directories without an option for it."""
    return deletes(Arguments([Reading("-r"), *given.words]), places)


def _deletes_on_windows(given: Arguments, places: Places) -> Finding | None:
    operands = [word for word in given.words if not re.fullmatch(r"/[a-zA-Z](?::.*)?|-.*", word.text)]
    return deletes(Arguments([Reading("-r"), *operands]), places)


def _overwrites(given: Arguments, places: Places) -> Finding | None:
    """Judge `tee`, `truncate` and `shred`, which write to all of their operands."""
    for operand in given.operands:
        if (lost := _vital(operand, places)) is not None:
            return Finding(f"would overwrite {lost}")
    return None


def _shreds(given: Arguments, places: Places) -> Finding | None:
    return _overwrites(given, places) or deletes(given, places)


def _copies(given: Arguments, places: Places) -> Finding | None:
    """Judge `cp`, `install` and `ln`, which overwrite their destination."""
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
    """Judge `chmod`, `chown` and the like on protected places; on a home only if they are recursive."""
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
    """Judge `rsync`, which some options make delete at the destination, or at the source."""
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
    """Judge `git clean` in a protected directory, or in one that is only known when it runs."""
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
    """Return the directories that `find` searches, and whether its tests select less than everything."""
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
    """Judge a program that `find … -exec` makes write to every file that is found."""
    texts = [word.text for word in words]
    is_target = (
        (name in _OVERWRITING and "{}" in texts)
        or (name in {"cp", "mv", "install"} and texts[-1:] == ["{}"])
        or (name == "dd" and "of={}" in texts)
    )
    lost = _whole(start, places) if is_target else None
    return None if lost is None else Finding(f"would overwrite what is in {lost}")


def _finds(given: Arguments, places: Places) -> Finding | None:
    """Judge `find … -delete`; the commands that it starts are judged elsewhere."""
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
    """Return a judge of a program that deletes its operands if one of its words matches `command`."""
    shape = re.compile(command)

    def judge(given: Arguments, places: Places) -> Finding | None:
        is_told = any(shape.fullmatch(word.text) for word in given.words)
        return _deletes_all(Arguments(given.operands), places) if is_told else None

    return judge


def _removes_user(given: Arguments, places: Places) -> Finding | None:
    if given.has("r", "remove", "remove-home", "remove-all-files"):
        return Finding("would delete a user with the home directory")
    return None


_LOOKS = {
    "fdisk": ("-l", "--list", "-s", "--getsz", "-x", "--list-details", "-V", "--version", "-h", "--help"),
    "sfdisk": ("-l", "--list", "-d", "--dump", "-s", "-V", "--verify", "-J", "--json", "-h", "--help"),
    "gdisk": ("-l",),
    "sgdisk": ("-p", "--print", "-i", "--info", "-v", "--verify"),
    "parted": ("-l", "--list", "print", "p"),
    "badblocks": (),
}
"""Words with which a program only reads the disk, by program."""


def _device(given: Arguments, places: Places) -> str | None:
    return next(
        (
            device
            for word in given.words
            if (device := places.device(word.text.partition("=")[2] or word.text, is_pattern=word.is_pattern))
        ),
        None,
    )


def _formats(given: Arguments, places: Places) -> Finding | None:
    """Judge `mkfs` and the like; to format an image in a file is harmless."""
    if given.has("h", "help", "version") and not given.operands:
        return None
    if (device := _device(given, places)) is not None:
        return Finding(f"would format {device}")
    if given.is_unclear or not given.operands:
        return Finding("formats something that is only known when it runs", is_fatal=False)
    return None


def _partitions(name: str) -> Judge:
    def judge(given: Arguments, places: Places) -> Finding | None:
        if any(word.text in _LOOKS[name] for word in given.words):
            return None
        if (device := _device(given, places)) is not None:
            return Finding(f"would change the partitions of {device}")
        return Finding("may change a disk", is_fatal=False) if given.is_unclear else None

    return judge


def _only_with(pattern: str, what: str) -> Judge:
    """Return a judge of a program that would do `what` if one of its words matches the pattern."""
    shape = re.compile(pattern, re.IGNORECASE)

    def judge(given: Arguments, places: Places) -> Finding | None:
        if not any(shape.fullmatch(word.text) for word in given.words):
            return None
        return Finding(f"would {what}")

    return judge


def _writes_disk(given: Arguments, places: Places) -> Finding | None:
    """Judge `dd` by the file that it writes to."""
    for word in given.words:
        name, _, value = word.text.partition("=")
        if name == "of" and (lost := places.vital(value, is_pattern=word.is_pattern)) is not None:
            return Finding(f"would overwrite {lost}")
        if (name == "of" and Reading(value).is_open) or word.is_open:
            return Finding("overwrites something that is only known when it runs", is_fatal=False)
    return None


def _alters(given: Arguments, places: Places) -> Finding | None:
    """Judge programs that change a disk which one of their words names."""
    device = _device(given, places)
    return None if device is None or given.has("h", "help", "version") else Finding(f"would change {device}")


def _unmounts(given: Arguments, places: Places) -> Finding | None:
    for operand in given.operands:
        if (lost := places.whole(operand.text, is_pattern=operand.is_pattern)) is not None:
            return Finding(f"would take away {lost}")
    return Finding("would take away all file systems") if given.has("a", "all") else None


def _discards(given: Arguments, places: Places) -> Finding | None:
    device = _device(given, places)
    return Finding(f"would erase {device or 'a disk'}")


def _stops(given: Arguments, places: Places) -> Finding | None:
    """Judge programs that halt or restart the machine, unless they only print something or cancel that."""
    if given.has("", "help", "version") or given.options == ["-c"] or "--show" in given.options:
        return None
    return Finding("would stop the machine")


def _stops_by(pattern: str) -> Judge:
    shape = re.compile(pattern)

    def judge(given: Arguments, places: Places) -> Finding | None:
        if any(shape.fullmatch(word.text) for word in given.words):
            return Finding("would stop the machine")
        return None

    return judge


def _kills(given: Arguments, places: Places) -> Finding | None:
    """Judge `kill` of process 1 or of every process, as in `kill -9 -1`.

    The first word is the signal if it begins with a dash, unless there is a `--`.
    """
    texts = [word.text for word in given.words]
    pids = texts[texts.index("--") + 1 :] if "--" in texts else texts
    if "--" not in texts and pids and pids[0] in {"-s", "-n"}:
        pids = pids[2:]
    elif "--" not in texts and pids and re.fullmatch(r"-(?:[A-Z0-9]+|l|L)", pids[0], re.IGNORECASE):
        pids = pids[1:]
    if "-1" in pids or "1" in pids:
        return Finding("would end every process that it can")
    return None


def _kills_by_name(given: Arguments, places: Places) -> Finding | None:
    is_of_all = any(re.fullmatch(r"[.*^$]*", operand.text) for operand in given.operands)
    if (
        is_of_all
        or given.has("v", "inverse")
        or (given.has("uUG", "user", "euid") and len(given.operands) <= 1)
    ):
        return Finding("may end all processes of a user", is_fatal=False)
    return None


def _everything(what: str) -> Judge:
    return lambda given, places: Finding(f"would {what}")


DISK_PROGRAMS: dict[str, Judge] = {
    "format": _only_with(r"[A-Za-z]:\\?", "format a drive"),
    "format.com": _only_with(r"[A-Za-z]:\\?", "format a drive"),
    "dd": _writes_disk,
    "gdd": _writes_disk,
    "dcfldd": _writes_disk,
    **dict.fromkeys(
        (
            *(
                "mkfs",
                "mke2fs",
                "mkswap",
                "mkdosfs",
                "mkntfs",
                "newfs",
                "newfs_hfs",
                "newfs_apfs",
                "mkreiserfs",
            ),
            *(
                f"mkfs.{kind}"
                for kind in ("ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "fat", "msdos", "ntfs")
            ),
            *(
                "mkfs.f2fs",
                "mkfs.exfat",
                "mkfs.jfs",
                "mkfs.minix",
                "mkfs.bfs",
                "mkfs.cramfs",
                "mkfs.reiserfs",
            ),
            *("pvcreate", "grub-install", "grub2-install", "extlinux", "lilo"),
        ),
        _formats,
    ),
    **{name: _partitions(name) for name in _LOOKS},
    "cfdisk": _formats,
    "wipefs": _only_with(r"-\w*[ao]\w*|--a(?:ll)?|--o(?:ffset)?(?:=.*)?", "erase what marks a disk"),
    "blkdiscard": _discards,
    "cryptsetup": _only_with(
        r"luksFormat|erase|luksErase|reencrypt|luksKillSlot|luksRemoveKey|format", "encrypt or erase a disk"
    ),
    "hdparm": _only_with(
        r"--security-[\w-]+|--trim-sector\S*|--make-bad\S*|--write-sector|--dco-restore", "erase a disk"
    ),
    "nvme": _only_with(r"format|sanitize|write-zeroes|write|fw-\w+|delete-ns", "erase a disk"),
    "zpool": _only_with(r"destroy|labelclear|create", "destroy a pool of disks"),
    "zfs": _only_with(r"destroy", "destroy a file system"),
    "mdadm": _only_with(r"--zero-superblock|--create|-C", "destroy an array of disks"),
    **dict.fromkeys(("lvremove", "vgremove", "pvremove"), _everything("remove volumes of the system")),
    "diskutil": _only_with(
        r"erase\w*|partitionDisk|zeroDisk|randomDisk|secureErase|reformat", "erase a disk"
    ),
    "diskpart": _everything("change the partitions of disks"),
    "efibootmgr": _only_with(r"-\w*B\w*|--delete-bootnum", "delete what the machine starts from"),
    **dict.fromkeys(
        (
            *(
                "scrub",
                "sg_format",
                "sg_sanitize",
                "ddrescue",
                "partclone.dd",
                "partclone.restore",
                "tune2fs",
            ),
            *("resize2fs", "xfs_repair", "lvreduce", "e2fsck", "ntfsresize", "pv", "dd_rescue"),
        ),
        _alters,
    ),
    "debugfs": _only_with(r"-\w*w\w*", "change a file system behind the system's back"),
    "dmsetup": _only_with(r"remove_all|remove|wipe_table", "remove volumes of the system"),
    "nwipe": _everything("erase disks"),
    "umount": _unmounts,
    "flashrom": _only_with(r"-\w*[wE]\w*|--write|--erase", "overwrite the firmware"),
    **dict.fromkeys(
        (
            *("halt", "poweroff", "reboot", "shutdown", "kexec", "stop-computer", "restart-computer"),
            "openrc-shutdown",
        ),
        _stops,
    ),
    **dict.fromkeys(("init", "telinit"), _stops_by(r"[0-6sS]")),
    "systemctl": _stops_by(r"(?:poweroff|reboot|halt|kexec|rescue|emergency|soft-reboot)(?:\.target)?"),
    "loginctl": _stops_by(r"poweroff|reboot|halt|terminate-user|terminate-seat|kill-user"),
    **dict.fromkeys(
        ("dbus-send", "busctl", "gdbus", "qdbus"),
        _stops_by(r"(?:.*\.)?(?:PowerOff|Reboot|Halt|KExec)(?:WithFlags)?"),
    ),
    "kill": _kills,
    **dict.fromkeys(("pkill", "killall", "skill"), _kills_by_name),
    "killall5": _everything("end every process"),
}
"""Judges of programs that write disks, stop machines or end processes, by the program's name."""

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
"""All judges, by the program's name."""

LOOKING = frozenset(
    {
        *("ls", "lsblk", "blkid", "stat", "file", "test", "[", "echo", "printf", "grep", "rg", "cat", "head"),
        *("tail", "xxd", "hexdump", "od", "strings", "md5sum", "sha256sum", "cksum", "du", "df", "findmnt"),
        *("smartctl", "udevadm", "lsof", "fuser", "readlink", "realpath", "mount", "losetup", "blockdev"),
        *("git", "gh", "man", "which", "find", "for", "tree", "iostat", "eject"),
    }
)
"""Programs that may be given a disk: they read it, mount it or only print its name."""


def given_a_disk(name: str, given: Arguments, places: Places) -> Finding | None:
    """Judge a program without a judge of its own that is given a disk."""
    device = _device(given, places) if name not in LOOKING else None
    return None if device is None else Finding(f"may change {device}", is_fatal=False)


STOPPING = frozenset(
    {
        *("halt", "poweroff", "reboot", "shutdown", "kexec", "stop-computer", "restart-computer", "init"),
        *("telinit", "systemctl", "kill", "pkill", "killall", "skill", "killall5"),
    }
)
"""Programs that stop machines or end processes; a relative path such as `./kill` is not taken for one."""


LONGEST = 20_000
"""Characters at the beginning of a program's text that are read."""

_LITERAL = re.compile(
    r"""'((?:[^'\\\n]|\\.){0,4000})'|"((?:[^"\\\n]|\\.){0,4000})"|`((?:[^`\\\n]|\\.){0,4000})`"""
    r"""|\bq[qwx]?[{(/|]([^})/|]{0,200})[})/|]"""
)
_DELETING = re.compile(
    r"rmtree|remove_?tree|rimraf|\brm_r|\brm_rf|rmdirSync|rmSync|\brmdir\b|removedirs|removeAll|RemoveAll"
    r"|delete_?(?:dir|tree|folder)|FileUtils\.|fs(?:\.promises)?\.rm|Deno\.remove|\bunlink|os\.remove\b|emptyDir"
    r"|\.unlink\(|\.rmdir\(|shutil\.move|os\.rename|fs\.rename",
    re.IGNORECASE,
)
_STARTING = re.compile(
    r"system|popen|subprocess|\bexec|spawn|child_process|check_(?:call|output)|\brun\(|\bcall\(|qx|`|shell|passthru"
    r"|pty\.|Command|\be\s|\bsh\b|\|\s*getline|\||!|<%|open\s*\(?|eval|io\.popen|os\.execute|Process",
    re.IGNORECASE,
)
_WRITING = re.compile(r"open|write|truncate|dump|copy|File\b|>", re.IGNORECASE)
_HOME = re.compile(
    r"expanduser\(|Path\.home\(\)|homedir\(\)|environ(?:\.get)?[\[(]\s*['\"]HOME|getenv\(\s*['\"]HOME|env\.HOME"
    r"|ENV[\[{]\s*['\"]?HOME|Dir\.home",
)
_ROOT_OF_ALL = re.compile(
    r"\bos\.sep\b|path\.sep\b|chr\(47\)|String\.fromCharCode\(47\)|os\.path\.abspath\(os\.sep\)"
)
_JOINING = re.compile(r"['\"]\s*(?:\+|\.|,)\s*['\"]")
_FORKING = re.compile(
    r"fork\s+while\s+fork|while\s*\(?\s*(?:1|true|!0)\s*\)?\s*[:{]?\s*(?:do)?\s*(?:os\.)?fork|loop\s*\{\s*fork",
    re.IGNORECASE,
)


def destroys(code: str, places: Places) -> Finding | None:
    """Return what a program's text would destroy by itself; the commands that it starts are judged elsewhere.

    It parses no language: it searches for calls that delete, write or fork, and for paths among the literals.
    """
    code = code[:LONGEST]
    if _FORKING.search(code):
        return Finding("would start processes until nothing works any more")
    literals = [*literals_in(code)]
    if _DELETING.search(code):
        whole = deletes(Arguments([Reading("-r"), *(Reading(text, True) for text in literals)]), places)
        if whole is not None and whole.is_fatal:
            return whole
        if _ROOT_OF_ALL.search(code) or (_HOME.search(code) and not _goes_on_from_home(code, literals)):
            return Finding("would delete a home directory or the root of the file system")
    if _WRITING.search(code):
        for text in literals:
            if (lost := places.vital(os.path.expanduser(text))) is not None:
                return Finding(f"would overwrite {lost}")
    return None


def starts_something(code: str) -> bool:
    """True if a program's text may start another program."""
    return _STARTING.search(code[:LONGEST]) is not None


def literals_in(code: str) -> Iterator[str]:
    """Yield the string literals of a program, also those that it concatenates."""
    for source in dict.fromkeys((code, _JOINING.sub("", code))):
        for match in _LITERAL.finditer(source):
            text = next(group for group in match.groups() if group is not None)
            yield os.path.expanduser(text) if text.startswith("~") else text


def _goes_on_from_home(code: str, literals: list[str]) -> bool:
    """True if the home seems to be only the beginning of a path, as in `Path.home() / "build"`."""
    named = [text for text in literals if text and text not in {"HOME", "~", "/", os.path.expanduser("~")}]
    return any(re.search(r"\w", text) for text in named) and re.search(r"[/+,]|join", code) is not None


def worst(findings: list[Finding]) -> Finding | None:
    """Return the first finding that denies, or else the first."""
    return next((each for each in findings if each.is_fatal), findings[0] if findings else None)
