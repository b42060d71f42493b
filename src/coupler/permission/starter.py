"""Programs that start others when an option or a subcommand says so: which words those are.

Only what is well known can be listed. A word that is missing here is one more that an open rule such as
`git log *` lets through, so a doubtful one belongs here.
"""

from __future__ import annotations

OPTIONS = {
    "git": (
        *("--exec-path", "--config-env", "--upload-pack", "--receive-pack", "--exec", "--ext-diff"),
        *("--open-files-in-pager", "--output", "--git-dir", "--work-tree", "--template", "--textconv"),
        *("--extcmd", "--config"),
    ),
    "make": ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
    "gmake": ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
    "tar": (
        *("--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
        *("--info-script", "--new-volume-script", "--rmt-command"),
    ),
    "rsync": ("--rsh", "--rsync-path"),
    "cargo": ("--config", "--manifest-path"),
    "npm": (
        *("--script-shell", "--prefix", "--node-options", "--userconfig", "--globalconfig", "--shell"),
        *("--git", "--editor", "--viewer", "--init-module", "--onload-script", "--call"),
    ),
    "sort": ("--compress-program", "--output"),
    "pytest": ("--override-ini", "--rootdir", "--confcutdir"),
    "less": ("--lesskey-file", "--lesskey-src", "--lesskey-content", "--log-file"),
    "more": (),
    "man": ("--pager", "--html", "--config-file", "--gxditview", "--preprocessor"),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "ack": ("--pager",),
    "bat": ("--pager",),
    "fzf": ("--preview", "--bind"),
    "scp": (),
    "sftp": (),
    "wget": ("--use-askpass", "--execute", "--config"),
    "zip": ("--unzip-command",),
    "tcpdump": (),
    "nc": ("--exec", "--sh-exec", "--lua-exec"),
    "ncat": ("--exec", "--sh-exec", "--lua-exec"),
    "go": ("--exec", "--toolexec", "--vettool", "--overlay", "--modfile"),
    "hg": ("--config",),
    "split": ("--filter",),
    "sdiff": ("--diff-program", "--output"),
    "diff3": ("--diff-program",),
    "install": ("--strip-program",),
    "shuf": ("--output",),
    "tree": (),
    "apt": ("--option", "--config-file"),
    "apt-get": ("--option", "--config-file"),
    "rpm": ("--eval", "--pipe", "--define", "--load", "--rcfile", "--macros"),
    "cmake": (),
    "ninja": (),
    "svn": ("--config-option", "--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-dir"),
    **dict.fromkeys(("gcc", "cc", "g++", "c++", "clang", "clang++"), ("--specs", "--wrapper")),
}
"""Options that hand over a command, a setting that is one, or a file to write; they may be abbreviated."""

LETTERS = {
    "make": "fCEI",
    "gmake": "fCEI",
    "tar": "IF",
    "rsync": "e",
    "sort": "o",
    "cargo": "ZC",
    "npm": "C",
    "less": "oOk",
    "man": "PHC",
    "scp": "oSFDJ",
    "sftp": "oSFDJ",
    "wget": "e",
    "sdiff": "o",
    "shuf": "o",
    "tree": "oR",
    "apt": "oc",
    "apt-get": "oc",
    "rpm": "ED",
    "cmake": "EPC",
    "ninja": "fC",
    "zip": "T",
    "tcpdump": "zw",
    "nc": "ec",
    "ncat": "ec",
}
"""The same as single letters, alone or among others."""

LETTERS_OF_GIT = {"grep": "O", "clone": "uc", "archive": "o"}

ONE_DASH = frozenset({"npm", "go", "gcc", "cc", "g++", "c++", "clang", "clang++"})
"""Programs to which `-exec` and `--exec` are the same."""

BEGINNINGS = {
    **dict.fromkeys(("gcc", "cc", "g++", "c++", "clang", "clang++"), ("-wrapper", "-fplugin", "-B", "@")),
    "less": ("+",),
    "more": ("+",),
}
"""Words that do so by how they begin."""

COMMANDS = frozenset(
    {
        *(("git", name) for name in ("config", "bisect", "submodule", "filter-branch", "rebase")),
        *(("git", name) for name in ("difftool", "mergetool", "send-email", "merge-index", "for-each-repo")),
        *(("git", name) for name in ("remote-ext", "remote-fd", "shell", "hook", "instaweb", "daemon")),
        *(("git", name) for name in ("submodule--helper", "bisect--helper")),
        *(("npm", name) for name in ("exec", "x", "explore", "config", "c", "set", "edit")),
        *(("npm", name) for name in ("init", "innit", "create")),
        *(("pnpm", name) for name in ("exec", "dlx", "create", "config")),
        *(("yarn", name) for name in ("exec", "dlx", "create", "config")),
        *(("docker", name) for name in ("run", "exec", "create", "buildx", "plugin")),
        *(("podman", name) for name in ("run", "exec", "create")),
        *(("uv", name) for name in ("run", "tool")),
        *(("kubectl", name) for name in ("exec", "run", "debug", "plugin")),
        *((name, "run") for name in ("cargo", "poetry", "pipenv", "pdm", "hatch", "rye", "conda", "pipx")),
        *((name, "exec") for name in ("bundle", "direnv", "asdf", "mise")),
        *(("gh", name) for name in ("alias", "extension")),
        *(("go", name) for name in ("run", "env", "generate")),
        ("deno", "eval"),
    }
)
"""Commands of programs whose further words are programs of their own, or settings that start some."""

GROUPS = frozenset({("docker", "container"), ("docker", "compose"), ("podman", "container")})
"""Commands whose own commands follow."""

ABBREVIATING = frozenset({"npm"})
"""Programs that understand the beginning of a command's name."""

WHOLE = frozenset({"npx", "bunx", "uvx"})
"""Programs whose words are another program, which a rule for all commands does not mean."""
