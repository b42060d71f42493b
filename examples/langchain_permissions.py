"""A LangChain agent with permission rules: what it may do, what it asks for first, and what it never does.

    pip install "coupler[langchain]" langchain-openai
    coupler serve examples/langchain_permissions.py

It uses any model that `init_chat_model` knows, by the name in AGENT_MODEL, and that model's own key. Its
tools work on the git repository that the session is opened in.

What is written here is the author's part. A user adds rules in a `coupler.toml`, and those count as well:
`deny = ["tool:delete_branch"]` takes a tool away that is asked about here.
"""

import os
import subprocess

from langchain.agents import create_agent

from coupler import acp, serve


def git(*words: str) -> str:
    """Run git where the session is; what went wrong is an error that the model reads."""
    served = acp.current()
    directory = served.session.cwd if served else "."
    done = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout.strip() or "done"


def list_branches() -> str:
    """The branches, with the last commit of each."""
    return git("branch", "--verbose", "--list")


def rename_branch(old: str, new: str) -> str:
    """Give a branch another name."""
    return git("branch", "--move", "--", old, new)


def delete_branch(name: str) -> str:
    """Delete a branch that is merged."""
    return git("branch", "--delete", "--", name)


def push(remote: str, branch: str) -> str:
    """Push a branch."""
    return git("push", "--", remote, branch)


agent = create_agent(
    os.environ.get("AGENT_MODEL", "openai:gpt-5"),
    [list_branches, rename_branch, delete_branch, push],
    system_prompt="You keep the branches of a git repository in order. Look at them before you change any.",
    middleware=[
        acp.permissions(
            {  # the first pattern that fits counts; a tool without one runs unasked
                "list_*": acp.Rule("allow", kind="read"),
                # The user may correct the names in a form before it runs.
                "rename_branch": acp.Rule("ask", kind="edit", decisions=("approve", "edit", "reject")),
                "delete_branch": acp.Rule(
                    "ask", kind="delete", message="It can be made again from its commit."
                ),
                "push": "deny",  # nobody is asked; the model is told that it may not
            }
        ),
    ],
    name="branches",
)

if __name__ == "__main__":
    serve(agent)
