"""Knows which environment variables change what a command does.

Almost every program obeys some variables, and some of them make it run something (PATH, LD_PRELOAD,
GIT_SSH_COMMAND, NODE_OPTIONS …). So three kinds are told apart: those that are known to be harmless whatever
their value; those whose names no program is known to obey, which are the project's own and harmless with a
plain value; and all others, which are in doubt.
"""

from __future__ import annotations

import re

_HARMLESS = frozenset(
    {
        *("CI", "CLICOLOR", "COLUMNS", "FORCE_COLOR", "LANG", "LANGUAGE", "LINES", "NODE_ENV", "NO_COLOR"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8", "RUST_BACKTRACE", "TZ"),
    }
)
_LOCALE = re.compile(r"LC_[A-Z]+")
_LOCAL = re.compile(r"[a-z][a-z0-9]*")
_TIED_IN_ZSH = frozenset(
    {"path", "fpath", "cdpath", "manpath", "mailpath", "fignore", "psvar", "watch", "prompt", "argv"}
)

LONGEST_VALUE = 100
"""Most characters of a value that is taken for a plain one."""
_OWN_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
_PLAIN_VALUE = re.compile(rf"(?:[A-Za-z0-9_][A-Za-z0-9_.,:=+-]{{0,{LONGEST_VALUE - 1}}})?")
_HARMLESS_LEVELS = frozenset({"RUST_LOG", "LOG_LEVEL", "RAILS_ENV", "RACK_ENV", "APP_ENV", "MIX_ENV"})
"""Variables that choose what is logged, or which of the project's settings are used, by a plain word."""

_OBEYED_FIRST = frozenset(
    {
        # The loader, the C library, the shells and the desktop.
        *("LD", "DYLD", "GLIBC", "GCONV", "MALLOC", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES", "NSS"),
        *("BASH", "BASHOPTS", "SHELL", "SHELLOPTS", "POSIXLY", "ENV", "IFS", "PATH", "HOME", "PWD"),
        *("OLDPWD", "CDPATH", "FPATH", "ZDOTDIR", "ZSH", "KSH", "FISH", "FIGNORE", "GLOBIGNORE"),
        *("EXECIGNORE", "MAIL", "MAILPATH", "MAILCHECK", "TIMEFORMAT", "TMOUT", "OPTIND", "OPTARG"),
        *("PROMPT", "INPUTRC", "FCEDIT", "USER", "LOGNAME", "UID", "EUID", "TERM", "TERMINFO", "TERMCAP"),
        *("DISPLAY", "WAYLAND", "XAUTHORITY", "XDG", "QT", "GTK", "GDK", "GIO", "GNOME", "KDE", "DBUS"),
        *("SYSTEMD", "SUDO", "DOAS", "TMUX", "SCREEN", "TMP", "TEMP", "TMPDIR", "TEMPDIR", "LESS"),
        *("LESSOPEN", "LESSCLOSE", "MORE", "MAN", "PAGER", "EDITOR", "VISUAL", "BROWSER", "VIM", "VIMINIT"),
        *("VIMRUNTIME", "NVIM", "EXINIT", "EMACS", "GREP", "TAR", "GZIP", "BZIP", "BZIP2", "XZ", "ZSTD"),
        *("UNZIP", "ZIP", "RSYNC", "CVS", "SVN", "HG", "LS", "COLORTERM"),
        # The network, and what talks to other machines.
        *("HTTP", "HTTPS", "FTP", "ALL", "NO", "SOCKS", "SSL", "SSLKEYLOGFILE", "OPENSSL", "CURL", "WGET"),
        *("WGETRC", "SSH", "GPG", "GNUPGHOME", "DOCKER", "COMPOSE", "BUILDKIT", "BUILDX", "PODMAN"),
        *("CONTAINER", "KUBE", "KUBECONFIG", "HELM", "AWS", "AZURE", "ARM", "GOOGLE", "GCP", "GCLOUD"),
        *("CLOUDSDK", "TF", "TERRAFORM", "TOFU", "PULUMI", "ANSIBLE", "VAGRANT", "PACKER", "VAULT", "NOMAD"),
        *("CONSUL", "KRB5", "GITHUB", "GITLAB", "GH", "GLAB", "SQLITE", "PSQL", "PSQLRC", "MYSQL", "REDIS"),
        *("MONGO", "ORACLE"),
        # Compilers and build programs.
        *("CC", "CXX", "CPP", "AR", "AS", "LD", "NM", "FC", "F77", "GCC", "CLANG", "LEX", "YACC", "TEX"),
        *("GET", "RM", "CO", "PC", "STRIP", "RANLIB", "OBJC", "OBJCOPY", "WINDRES", "M4", "SED", "AWK"),
        *("INSTALL", "CMAKE", "CTEST", "NINJA", "MESON", "BAZEL", "BUCK", "SCONS", "AUTOCONF", "AUTOMAKE"),
        *("LIBTOOL", "ACLOCAL", "PKG", "CCACHE", "SCCACHE", "DISTCC", "ASAN", "UBSAN", "TSAN", "MSAN"),
        *("LSAN", "LLVM", "CUDA", "NVCC", "OMP", "MKL", "JUST", "DIRENV", "NIX", "GUIX", "HOMEBREW", "APT"),
        *("DEB", "DEBIAN", "DEBCONF", "DPKG", "RPM", "PACMAN", "PORTAGE", "CONDA", "MAMBA", "ASDF", "MISE"),
        *("NVM", "FNM", "VOLTA"),
        # Languages and their tools.
        *("PIP", "PIPX", "PIPENV", "UV", "POETRY", "PDM", "HATCH", "RYE", "TOX", "NOX", "VIRTUAL"),
        *("VIRTUALENV", "PYTEST", "PY", "COVERAGE", "COV", "MYPY", "RUFF", "BLACK", "PYLINT", "DJANGO"),
        *("FLASK", "CELERY", "GUNICORN", "UVICORN", "JUPYTER", "IPYTHON", "HYPOTHESIS", "NPM", "YARN"),
        *("PNPM", "BUN", "DENO", "COREPACK", "ELECTRON", "CHROME", "CHROMIUM", "FIREFOX", "PLAYWRIGHT"),
        *("PUPPETEER", "CYPRESS", "SELENIUM", "JEST", "VITEST", "MOCHA", "BABEL", "WEBPACK", "ESLINT"),
        *("PRETTIER", "TS", "SWC", "ESBUILD", "HUSKY", "LEFTHOOK", "PRE", "SKIP", "JDK", "JRE", "CLASSPATH"),
        *("MAVEN", "MVN", "M2", "GRADLE", "ANT", "SBT", "SCALA", "KOTLIN", "GROOVY", "LEIN", "CLJ", "GO"),
        *("CGO", "CARGO", "RUST", "RUSTC", "RUSTDOC", "RUSTUP", "CRATE", "GEM", "BUNDLE", "BUNDLER", "RAKE"),
        *("RAILS", "RACK", "THOR", "IRB", "IRBRC", "LUA", "PHP", "PHPRC", "COMPOSER", "ERL", "ELIXIR"),
        *("MIX", "HEX", "REBAR", "R", "RSCRIPT", "JULIA", "OCAML", "OPAM", "GHC", "CABAL", "STACK", "SWIFT"),
        *("XCODE", "DOTNET", "MSBUILD", "NUGET", "ANDROID", "FLUTTER", "DART", "ZIG", "NIM", "TCL"),
        *("OCTAVE", "ANTHROPIC", "CLAUDE", "OPENAI", "GEMINI", "CODEX", "COUPLER", "COMSPEC", "PATHEXT"),
        *("SYSTEMROOT", "WINDIR", "APPDATA", "PSMODULEPATH"),
    }
)
"""First words of the names that programs, loaders and shells are known to obey."""

_OBEYED_BEGINNINGS = (
    *("PYTHON", "PERL", "RUBY", "NODE", "JAVA", "MAKE", "GIT", "HIST", "PS", "PG", "COMP", "READLINE"),
    *("LUA", "PKG", "GO1", "GOFLAGS", "GOPROXY", "GOPATH", "GOROOT", "GOBIN", "GOTOOL", "GOENV", "GOOS"),
    *("GOARCH", "GNUMAKE", "MANP", "BASH", "ZSH", "KUBE", "NPM", "LESS", "RUSTC", "RUSTFL", "TERM", "XDG"),
    "LS",
)
_OBEYED_ENDINGS = (
    *("PATH", "PATHS", "HOME", "ROOT", "DIR", "DIRS", "FILE", "FILES", "CONFIG", "CONF", "CFG", "RC"),
    *("INIT", "FLAGS", "OPTS", "OPT", "OPTIONS", "OPTION", "ARGS", "ARG", "ARGUMENTS", "PARAMS", "COMMAND"),
    *("CMD", "COMMANDS", "EXEC", "EXE", "BIN", "BINARY", "PROGRAM", "PROG", "SHELL", "EDITOR", "PAGER"),
    *("BROWSER", "VIEWER", "WRAPPER", "LAUNCHER", "RUNNER", "INTERPRETER", "COMPILER", "LINKER", "TOOL"),
    *("TOOLS", "TOOLCHAIN", "HOOK", "HOOKS", "PLUGIN", "PLUGINS", "MODULE", "MODULES", "LOADER", "PRELOAD"),
    *("LIBRARY", "LIB", "LIBS", "INCLUDE", "PROXY", "URL", "URI", "HOST", "HOSTS", "SERVER", "REGISTRY"),
    *("INDEX", "MIRROR", "SOURCE", "SOURCES", "SETTINGS", "SCRIPT", "SCRIPTS", "STARTUP", "EVAL", "ASKPASS"),
    *("RSH", "SSH", "PREFIX", "EXTENSION", "EXTENSIONS", "OVERRIDE", "OVERRIDES", "TARGET", "BACKEND"),
    *("DRIVER", "HANDLER", "FILTER", "ENGINE", "PROVIDER", "AGENT", "SOCKET", "SOCK", "IMAGE", "CLASS"),
    "CODE",
)
_OBEYED_WITHIN = ("PRELOAD", "PROXY", "ASKPASS", "EDITOR", "PAGER", "SHELL", "COMMAND", "TRACE")


def is_harmless(name: str, value: str | None = None) -> bool:
    """True if this environment variable does not change what a command does.

    Without a value it must be harmless whatever it is set to.
    """
    if name in _HARMLESS or _LOCALE.fullmatch(name) is not None:
        return True
    return value is not None and _PLAIN_VALUE.fullmatch(value) is not None and is_of_project(name)


def is_local(name: str, value: str | None = None) -> bool:
    """True if a script may set this variable: it is harmless, or a lower-case name that no program reads."""
    return is_harmless(name, value) or (_LOCAL.fullmatch(name) is not None and name not in _TIED_IN_ZSH)


def is_of_project(name: str) -> bool:
    """True if no program, loader or shell is known to obey a variable of this name: `FOO`, `APP_ENV`.

    Names are in capitals, as the project's own are by custom; npm and proxies obey small ones as well.
    """
    if name in _HARMLESS_LEVELS:
        return True
    words = name.split("_")
    return (
        _OWN_NAME.fullmatch(name) is not None
        and words[0] not in _OBEYED_FIRST
        and not name.startswith(_OBEYED_BEGINNINGS)
        and not words[-1].endswith(_OBEYED_ENDINGS)
        and not any(part in name for part in _OBEYED_WITHIN)
    )
