"""Programs that write disks, stop machines or end every process."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from coupler.permission.floor.arguments import Arguments
from coupler.permission.floor.expansion import Reading
from coupler.permission.floor.finding import Finding
from coupler.permission.floor.place import Places

Judge: TypeAlias = Callable[[Arguments, Places], Finding | None]

_LOOKS = {
    "fdisk": ("-l", "--list", "-s", "--getsz", "-x", "--list-details", "-V", "--version", "-h", "--help"),
    "sfdisk": ("-l", "--list", "-d", "--dump", "-s", "-V", "--verify", "-J", "--json", "-h", "--help"),
    "gdisk": ("-l",),
    "sgdisk": ("-p", "--print", "-i", "--info", "-v", "--verify"),
    "parted": ("-l", "--list", "print", "p"),
    "badblocks": (),
}
"""Words with which these only look."""


LOOKING = frozenset(
    {
        *("ls", "lsblk", "blkid", "stat", "file", "test", "[", "echo", "printf", "grep", "rg", "cat", "head"),
        *("tail", "xxd", "hexdump", "od", "strings", "md5sum", "sha256sum", "cksum", "du", "df", "findmnt"),
        *("smartctl", "udevadm", "lsof", "fuser", "readlink", "realpath", "mount", "losetup", "blockdev"),
        *("git", "gh", "man", "which", "find", "for", "tree", "iostat", "eject"),
    }
)
"""Programs that a disk is nothing but looked at with, or that only make it a directory."""


def given_a_disk(name: str, given: Arguments, places: Places) -> Finding | None:
    """A program that nobody here knows, and a disk among its words."""
    device = _device(given, places) if name not in LOOKING else None
    return None if device is None else Finding(f"may change {device}", is_fatal=False)


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
    """`mkfs` and the like: of an image in a file it is an ordinary thing."""
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
    """A program that does this to a disk if one of its words says so."""
    shape = re.compile(pattern, re.IGNORECASE)

    def judge(given: Arguments, places: Places) -> Finding | None:
        if not any(shape.fullmatch(word.text) for word in given.words):
            return None
        return Finding(f"would {what}")

    return judge


def _writes_disk(given: Arguments, places: Places) -> Finding | None:
    """`dd`: only where it writes to counts."""
    for word in given.words:
        name, _, value = word.text.partition("=")
        if name == "of" and (lost := places.vital(value, is_pattern=word.is_pattern)) is not None:
            return Finding(f"would overwrite {lost}")
        if (name == "of" and Reading(value).is_open) or word.is_open:
            return Finding("overwrites something that is only known when it runs", is_fatal=False)
    return None


def _alters(given: Arguments, places: Places) -> Finding | None:
    """Programs that change a disk which is one of their words."""
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
    """Halting the machine ends everybody's work, and the session's own."""
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
    """`kill -9 -1`: the first word that begins with a dash is the signal, unless `--` stands before."""
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


STOPPING = frozenset(
    {
        *("halt", "poweroff", "reboot", "shutdown", "kexec", "stop-computer", "restart-computer", "init"),
        *("telinit", "systemctl", "kill", "pkill", "killall", "skill", "killall5"),
    }
)
"""Programs that are known by nothing but their names."""

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
"""What is known, by the program's name."""
