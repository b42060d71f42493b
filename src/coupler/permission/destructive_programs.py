"""Judges programs that delete, overwrite, format or stop something, by what they are given.

Each program has a judge, which is given its arguments in one reading and the protected places, and returns
what the command would destroy. `floor` finds the programs in a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from coupler.permission.patterns import glob
from coupler.permission.places import UNKNOWN, Places, Reading


class Finding(NamedTuple):
    """A reason to deny a command, or to ask about it whatever is allowed."""

    reason: str
    """The harm, as the rest of a sentence that begins with "the command"."""
    is_fatal: bool = True
    """True if the command is denied; otherwise it may be legitimate, and is asked about."""


def question(reason: str) -> Finding:
    return Finding(reason, is_fatal=False)


def fatal(finding: Finding | None) -> Finding | None:
    """Return the finding if it denies, else None: a question about what may be mere text is a false alarm."""
    return finding if finding is not None and finding.is_fatal else None


def if_empty(finding: Finding | None) -> Finding | None:
    """Make a question of a denial that depends on an empty variable, and say how to write it safely."""
    if finding is None or not finding.is_fatal:
        return finding
    return question(f"{finding.reason} if a variable is empty (write `${{NAME:?}}` for it)")


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

    def matches(self, pattern: str) -> bool:
        """True if one of the words matches the pattern, in any case."""
        return any(re.fullmatch(pattern, word.text, re.IGNORECASE) for word in self.words)

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

    def values(self, *names: str) -> list[Reading]:
        """Return all words that may be the value of an option, which may be bundled or abbreviated.

        `-sSLo x`, `-sox` and `--outp x` are `-o x`. Which letters of a bundle are options is not known.
        """
        found: list[Reading] = []
        for place, word in enumerate(self.words):
            option, sign, joined = word.text.partition("=")
            following = self.words[place + 1 : place + 2]
            for name in names:
                if name.startswith("--") and len(option) > 2 and name.startswith(option):
                    found += [word._replace(text=joined)] if sign else following
                elif len(name) == 2 and re.match(r"-[^-]", word.text) and name[1] in word.text:
                    rest = word.text.partition(name[1])[2]
                    found += [word._replace(text=rest)] if rest else following
                elif word.text == name:
                    found += following
        return found


class Harm(NamedTuple):
    """The operands of a program that it would delete, move away or overwrite."""

    deleted: Sequence[Reading] = ()
    moved: Sequence[Reading] = ()
    written: Sequence[Reading] = ()
    emptied: Sequence[Reading] = ()
    is_deep: bool = True
    """True if directories are deleted with all that is in them."""


Judge: TypeAlias = Callable[[Arguments, Places], Finding | None]


def _harms(harm_of: Callable[[Arguments], Harm]) -> Judge:
    """Return a judge of a program by what becomes of its operands."""

    def judge(given: Arguments, places: Places) -> Finding | None:
        harm = harm_of(given)
        verbs = (*(("delete", each) for each in harm.deleted), *(("move away", each) for each in harm.moved))
        for verb, operand in verbs:
            if (lost := places.whole(operand) or places.vital(operand)) is not None:
                return Finding(f"would {verb} {lost}")
        lost = next((each for each in map(places.whole, harm.emptied) if each is not None), None)
        if lost is not None:
            return Finding(f"would overwrite what is in {lost}")
        written = (writes_to(target, places) for target in (*harm.written, *harm.emptied))
        if (found := next((each for each in written if each is not None), None)) is not None:
            return found
        if not harm.is_deep and not given.is_unclear:
            return None
        for verb, operand in verbs:
            if (lost := places.own(operand)) is not None:
                return question(f"would {verb} {lost}")
        return _deletes_unknown(harm.deleted, places)

    return judge


def _deletes_unknown(deleted: Sequence[Reading], places: Places) -> Finding | None:
    if any(_is_built_from_vital(operand, places) for operand in deleted):
        return question("deletes what is in a vital directory, by names that are only known when it runs")
    is_relative = any(not operand.text.startswith("/") for operand in deleted)
    if any(operand.is_open for operand in deleted) or (is_relative and places.is_lost):
        return question("deletes directories that are only known when it runs")
    return None


def _is_built_from_vital(operand: Reading, places: Places) -> bool:
    """True if a path is something unknown directly in a protected directory: `~/"$name"`."""
    head, slash, tail = operand.text.rstrip("/").rpartition("/")
    return bool(slash) and tail.startswith(UNKNOWN) and places.whole(Reading(head or "/")) is not None


def writes_to(target: Reading, places: Places) -> Finding | None:
    if (lost := places.vital(target)) is not None:
        found = Finding(f"would overwrite {lost}")
        return if_empty(found) if target.is_bare else found
    is_unknown = target.text.startswith("/dev/") and UNKNOWN in target.text
    return question("writes to a device that is only known when it runs") if is_unknown else None


def downloaded(name: str, given: Arguments) -> list[Reading]:
    """Return the files that `curl` or `wget` writes, as its options or the addresses name them."""
    is_curl = name == "curl"
    files = given.values(*(("-o", "--output") if is_curl else ("-O", "--output-document")))
    if not is_curl or given.has("OJ", "remote-name", "remote-name-all"):
        files += [word._replace(text=_base(re.split("[?#]", word.text)[0])) for word in given.operands]
    directories = given.values(*(("--output-dir",) if is_curl else ("-P", "--directory-prefix")))
    return [*files, *_put_into(directories, files)]


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2].rpartition(":")[2]


def _put_into(directories: Sequence[Reading], files: Sequence[Reading]) -> list[Reading]:
    """Return the files as they are called in each directory; a name with a wildcard there may be any."""
    return [
        directory._replace(
            text=f"{directory.text}/{_base(each.text)}", is_bare=directory.is_bare or each.is_bare
        )
        for directory in directories
        for each in files
        if directory.text and _base(each.text) not in {"", ".", ".."}
    ]


def _deletes_with(pattern: str = ".*") -> Judge:
    """Return a judge of a program that deletes its operands if one of its words matches the pattern."""
    return _harms(
        lambda given: Harm(
            [each for each in given.operands if not re.fullmatch(r"/[a-zA-Z](?::.*)?", each.text)]
            if given.matches(pattern)
            else ()
        )
    )


def _moves(given: Arguments) -> Harm:
    targets = given.values("-t", "--target-directory")
    sources = [each for each in given.operands if each not in targets] if targets else given.operands[:-1]
    targets += given.operands[-1:]
    return Harm(moved=sources, written=[*targets, *_put_into(targets, sources)])


def _synchronises(given: Arguments) -> Harm:
    *sources, target = given.operands or [Reading("")]
    deleted = [target] if any(option.startswith("--del") for option in given.options) else []
    return Harm(
        [*deleted, *(sources if given.has("", "remove-source-files") else [])],
        written=[target, *_put_into([target], sources)],
    )


def _unpacks(given: Arguments) -> Harm:
    is_removing = given.has("", "remove-files") or (given.has("m") and given.has("r"))
    return Harm(given.operands if is_removing else (), written=given.values("-d", "-C", "--directory"))


def _writes_disk(given: Arguments, places: Places) -> Finding | None:
    """Judge `dd` by the file that it writes to."""
    target = given.value("of=")
    if given.is_unclear or (target is not None and target.is_open):
        return question("overwrites something that is only known when it runs")
    return None if target is None else writes_to(target, places)


def _changes_rights(given: Arguments, places: Places) -> Finding | None:
    """Judge `chmod`, `chown` and the like on protected places; on those in homes only if it is recursive."""
    is_deep = given.has("R", "recursive") or given.is_unclear
    for operand in given.operands:
        lost = places.whole(operand) if is_deep or not places.is_in_home(operand) else None
        lost = lost or (places.vital(operand) if places.device(operand) is None else None)
        if lost is not None:
            return Finding(f"would change the rights of {lost}")
    if given.has("R", "recursive") and any(operand.is_open for operand in given.operands[1:]):
        return question("changes the rights of directories that are only known when it runs")
    return None


def _cleans(given: Arguments, places: Places) -> Finding | None:
    """Judge `git clean` in a protected directory, or in one that is only known when it runs."""
    if not any(word.text == "clean" for word in given.words):
        return None
    place = given.value("-C") or given.value("--work-tree") or Reading(".")
    if given.has("f", "force") and (lost := places.whole(place)) is not None:
        return Finding(f"would delete what is in {lost}")
    is_unknown = place.is_open or places.is_lost
    return question("deletes what is in a directory that is only known when it runs") if is_unknown else None


_FIND_TESTS = re.compile(
    r"-(?:i?name|i?path|i?wholename|i?regex|newer.*|[acm](?:time|min)|size|empty|links|inum|samefile|nogroup"
    r"|nouser|uid|gid|used|lname|ilname)"
)


def find_starts(words: Sequence[Reading]) -> tuple[list[Reading], bool]:
    """Return the directories that `find` searches, and whether its tests select less than everything."""
    texts = [word.text for word in words]
    first = next(
        (at for at, text in enumerate(texts) if not re.fullmatch(r"-[HLP]|-O\d|-D.*", text)), len(texts)
    )
    starts: list[Reading] = []
    for word in words[first:]:
        if word.text.startswith(("-", "(", "!", "\\")):
            break
        starts.append(word._replace(text=f"{word.text}/") if {"-L", "-H"} & {*texts[:first]} else word)
    is_narrow = not {"-o", "-or"} & {*texts} and any(
        _FIND_TESTS.fullmatch(text)
        and (at == 0 or texts[at - 1] not in {"!", "-not"})
        and not re.fullmatch(r"[*?./]+", "".join(texts[at + 1 : at + 2]))
        for at, text in enumerate(texts)
    )
    return starts or [Reading(".")], is_narrow


def finds_history(words: Sequence[Reading], start: str, *, is_by_path: bool = False) -> bool:
    """True if the tests of `find` may select a `.git` by its name, or with what is in it by their paths."""
    texts = [word.text for word in words]
    is_for_files = any(texts[at : at + 2] == ["-type", "f"] for at in range(len(texts)))
    history = f"{start.rstrip('/')}/.git".casefold()
    for at, text in enumerate(texts[:-1]):
        if at and texts[at - 1] in {"!", "-not"}:
            continue
        shape = glob(texts[at + 1].casefold())
        if re.fullmatch("-i?name", text) and not (is_by_path or is_for_files) and shape.match(".git"):
            return True
        if re.fullmatch("-i?(?:path|wholename)", text) and any(map(shape.match, (history, f"{history}/x"))):
            return True
    return False


_FIND_OVERWRITES = re.compile(
    r".* -(?:exec|ok)(?:dir)? (?:\S*/)?"
    r"(?:(?:tee|truncate|fallocate|sponge) .*\{\}.*|(?:cp|install|dd) .*\{\} [;+])"
)


def _finds(given: Arguments, places: Places) -> Finding | None:
    """Judge `find` that deletes or overwrites what it finds."""
    starts, is_narrow = find_starts(given.words)
    text = " ".join(word.text for word in given.words)
    lost = next((each for each in map(places.whole, starts) if each is not None), None)
    if lost is not None and not is_narrow and _FIND_OVERWRITES.match(text):
        return Finding(f"would overwrite what is in {lost}")
    found = _harms(lambda given: Harm(starts if given.matches("-delete") else ()))(given, places)
    if is_narrow and given.matches("-delete"):
        for start in starts:
            history = places.own(start._replace(text=f"{start.text}/.git"))
            if history is not None and finds_history(given.words, start.text, is_by_path=True):
                return question(f"would delete {history}")
    if found is None or not is_narrow:
        return found
    return question(found.reason.replace("delete", "delete in")) if found.is_fatal else None


def disk_in(given: Arguments, places: Places) -> str | None:
    named = (
        word._replace(text=word.text.partition("=")[2] or word.text) for word in dict.fromkeys(given.words)
    )
    return next((disk for disk in map(places.device, filter(places.exists, named)) if disk is not None), None)


def _changes_disk(*looks: str, is_asked: bool = True) -> Judge:
    """Return a judge of a program that changes the disk it is given, unless one of the `looks` is there."""

    def judge(given: Arguments, places: Places) -> Finding | None:
        if any(word.text in looks for word in given.words) or given.has("", "help", "version"):
            return None
        if (disk := disk_in(given, places)) is not None:
            return Finding(f"would change {disk}")
        is_unknown = is_asked and (given.is_unclear or not given.operands)
        return question("may change a disk that is only known when it runs") if is_unknown else None

    return judge


def _with(pattern: str, what: str) -> Judge:
    """Return a judge of a program that would do `what` if one of its words matches the pattern."""
    return lambda given, places: Finding(f"would {what}") if given.matches(pattern) else None


def _unless(what: str, pattern: str = "--(?:help|version)") -> Judge:
    """Return a judge of a program that would do `what` unless one of its words matches the pattern."""
    return lambda given, places: None if given.matches(pattern) else Finding(f"would {what}")


def _unmounts(given: Arguments, places: Places) -> Finding | None:
    lost = next((each for each in map(places.whole, given.operands) if each is not None), None)
    lost = "all file systems" if lost is None and given.has("a", "all") else lost
    return None if lost is None else Finding(f"would take away {lost}")


def _kills(given: Arguments, places: Places) -> Finding | None:
    """Judge `kill` of process 1 or of every process; a first word with a dash is the signal."""
    texts = [word.text for word in given.words]
    if "--" in texts:
        texts = texts[texts.index("--") + 1 :]
    elif texts and re.fullmatch(r"-\w+", texts[0]):
        texts = texts[2:] if texts[0] in {"-s", "-n"} else texts[1:]
    return Finding("would end every process that it can") if {"-1", "1"} & {*texts} else None


def _kills_by_name(given: Arguments, places: Places) -> Finding | None:
    is_of_all = any(re.fullmatch(r"[.*^$]*", operand.text) for operand in given.operands)
    is_of_user = given.has("uUG", "user", "euid") and len(given.operands) <= 1
    is_wide = is_of_all or is_of_user or given.has("v", "inverse")
    return question("may end all processes of a user") if is_wide else None


_STOP = "stop the machine"
_ERASE = "erase a disk"
_VOLUMES = "remove volumes of the system"
_JUDGES: tuple[tuple[str, Judge], ...] = (
    (
        "rm grm unlink shred gshred",
        _harms(lambda given: Harm(given.operands, is_deep=given.has("rR", "recursive"))),
    ),
    ("rimraf trash trash-put del-cli srm wipe rd rmdir del erase remove-item ri", _deletes_with()),
    ("btrfs", _deletes_with("delete")),
    ("gio", _deletes_with("trash|remove")),
    ("rclone", _deletes_with("purge|delete|deletefile|rmdirs|sync|move|cleanup")),
    ("7z 7za 7zz", _deletes_with("-sdel")),
    ("cmake", _deletes_with("rm|remove_directory")),
    ("tee truncate gtruncate fallocate sponge", _harms(lambda given: Harm(emptied=given.operands))),
    ("sed gsed", _harms(lambda given: Harm(written=given.operands if given.has("i", "in-place") else ()))),
    ("curl", _harms(lambda given: Harm(written=downloaded("curl", given)))),
    ("wget", _harms(lambda given: Harm(written=downloaded("wget", given)))),
    ("cp gcp install ln scp", _harms(lambda given: _moves(given)._replace(moved=()))),
    ("mv gmv", _harms(_moves)),
    ("chmod chown chgrp gchmod gchown chattr setfacl chcon chflags xattr", _changes_rights),
    ("rsync", _harms(_synchronises)),
    ("zip tar gtar bsdtar unzip", _harms(_unpacks)),
    ("git", _cleans),
    ("find gfind", _finds),
    ("userdel deluser", _with("-r|--remove.*", "delete a user with the home directory")),
    ("dd gdd dcfldd", _writes_disk),
    (
        "mkfs mke2fs mkswap mkdosfs mkntfs newfs newfs_hfs newfs_apfs mkreiserfs cfdisk badblocks",
        _changes_disk(),
    ),
    ("pvcreate grub-install grub2-install extlinux lilo", _changes_disk()),
    ("fdisk", _changes_disk("-l", "--list", "-s", "--getsz", "-x", "--list-details", "-V", "-h")),
    ("sfdisk", _changes_disk("-l", "--list", "-d", "--dump", "-s", "-V", "--verify", "-J", "--json", "-h")),
    ("gdisk", _changes_disk("-l")),
    ("sgdisk", _changes_disk("-p", "--print", "-i", "--info", "-v", "--verify")),
    ("parted", _changes_disk("-l", "--list", "print", "p")),
    (
        "scrub sg_format sg_sanitize ddrescue partclone.dd partclone.restore",
        _changes_disk("-h", is_asked=False),
    ),
    (
        "tune2fs resize2fs xfs_repair lvreduce e2fsck ntfsresize pv dd_rescue",
        _changes_disk("-h", is_asked=False),
    ),
    ("blkdiscard diskpart nwipe", _unless(_ERASE)),
    ("format format.com", _with(r"[a-z]:\\?", "format a drive")),
    ("wipefs", _with(r"-\w*[ao]\w*|--a(?:ll)?|--o(?:ffset)?(?:=.*)?", "erase what marks a disk")),
    ("cryptsetup", _with(r"(?:luks)?(?:format|erase)|reencrypt|luksKillSlot|luksRemoveKey", _ERASE)),
    ("hdparm", _with(r"--(?:security-|trim-sector|make-bad|write-sector|dco-restore)\S*", _ERASE)),
    ("nvme", _with(r"format|sanitize|write-zeroes|write|fw-\w+|delete-ns", _ERASE)),
    ("zpool", _with(r"destroy|labelclear|create", "destroy a pool of disks")),
    ("zfs", _with(r"destroy", "destroy a file system")),
    ("mdadm", _with(r"--zero-superblock|--create|-C", "destroy an array of disks")),
    ("lvremove vgremove pvremove", _unless(_VOLUMES)),
    ("diskutil", _with(r"erase\w*|partitionDisk|zeroDisk|randomDisk|secureErase|reformat", _ERASE)),
    ("efibootmgr", _with(r"-\w*B\w*|--delete-bootnum", "delete what the machine starts from")),
    ("debugfs", _with(r"-\w*w\w*", "change a file system behind the system's back")),
    ("dmsetup", _with(r"remove_all|remove|wipe_table", _VOLUMES)),
    ("umount", _unmounts),
    ("flashrom", _with(r"-\w*[wE]\w*|--write|--erase", "overwrite the firmware")),
    ("halt poweroff reboot shutdown kexec openrc-shutdown", _unless(_STOP, "-c|--(?:show|help|version)")),
    ("stop-computer restart-computer", _unless(_STOP)),
    ("init telinit", _with(r"[0-6s]", _STOP)),
    ("systemctl", _with(r"(?:poweroff|reboot|halt|kexec|rescue|emergency|soft-reboot)(?:\.target)?", _STOP)),
    ("loginctl", _with(r"poweroff|reboot|halt|terminate-user|terminate-seat|kill-user", _STOP)),
    ("dbus-send busctl gdbus qdbus", _with(r"(?:.*\.)?(?:PowerOff|Reboot|Halt|KExec)(?:WithFlags)?", _STOP)),
    ("kill", _kills),
    ("pkill killall skill", _kills_by_name),
    ("killall5", _unless("end every process")),
)
PROGRAMS = {name: judge for names, judge in _JUDGES for name in names.split()}
"""Judges of destructive programs, by the program's name."""
