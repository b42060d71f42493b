"""The scripts for shells, and how they are installed. What they do is click's."""

from __future__ import annotations

SHELLS = ("bash", "zsh", "fish")

PROGRAM = "coupler"
VARIABLE = "_COUPLER_COMPLETE"
"""Set by the scripts, with what they want, when they ask for completions."""

HOW_TO_INSTALL = {
    "bash": """\
To have it in every new shell, add this line to ~/.bashrc:
  eval "$(coupler completion bash)"
Or, with the package bash-completion, write it where it is found when it is first needed:
  mkdir -p ~/.local/share/bash-completion/completions
  coupler completion bash > ~/.local/share/bash-completion/completions/coupler""",
    "zsh": """\
To have it in every new shell, add this line to ~/.zshrc, after the one with compinit:
  eval "$(coupler completion zsh)"
Or write it to a directory of your fpath:
  coupler completion zsh > "${fpath[1]}/_coupler\"""",
    "fish": """\
To have it in every new shell, write it where fish looks for it:
  coupler completion fish > ~/.config/fish/completions/coupler.fish""",
}


def script(shell: str) -> str:
    """The script, with how to install it in its first lines."""
    from click.shell_completion import get_completion_class

    from coupler.cli.command import command

    chosen = get_completion_class(shell)
    assert chosen is not None
    asking = chosen(command, {}, PROGRAM, VARIABLE)
    # Without a look at the version of the shell: it is not always the one that is going to read this.
    text = asking.source_template % asking.source_vars()
    comment = "".join(f"# {line}".rstrip() + "\n" for line in HOW_TO_INSTALL[shell].splitlines())
    # zsh knows what a file is for by its first line.
    first, newline, rest = text.partition("\n") if text.startswith("#compdef") else ("", "", text)
    return f"{first}{newline}{comment}{rest.lstrip(chr(10))}"
