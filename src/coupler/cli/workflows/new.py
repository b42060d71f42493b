"""`coupler workflows new`: examples that run, to begin from."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.cli.exit_codes import FAILED
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.store.choices import Trust
    from coupler.workflow.language.library import Library

_COMMANDS = """\
# A workflow: commands, from top to bottom. `coupler workflows validate` checks it,
# `coupler workflows graph {name}` draws it, and `coupler run {name}` runs it.
name: {name}
description: Count the lines of some files

# What whoever starts it may give: coupler run {name} pattern='*.md'
inputs:
  pattern: {{default: "*", description: Which files}}

steps:
  # The id is the name by which later steps use what this one has found.
  - id: files
    run: find . -maxdepth 1 -type f -name {{{{ inputs.pattern }}}}
    output: lines              # stdout as a list: steps.files.output
    timeout: 30s

  - if: not steps.files.output
    stop: {{status: success, message: "No file is called {{{{ inputs.pattern }}}}"}}

  # Once for each file, two at a time; `item` is the file.
  - id: counts
    for_each: steps.files.output
    max_concurrent: 2
    steps:
      - id: count
        # A value in braces is always one word for the shell, whatever is in it.
        run: wc -l < {{{{ item }}}}
        on_error: continue

# What comes out: one whole pair of braces keeps its type, so this is a list.
outputs:
  files: "{{{{ steps.files.output }}}}"
  lines: "{{{{ steps.counts.results | map(attribute='count.stdout') | map('trim') | list }}}}"
"""

_AGENT = """\
# A workflow: an agent that reviews a change, with an answer that programs can read.
# `coupler agents` lists the agents that can be used here.
name: {name}
description: Review the changes that are not committed yet

inputs:
  agent: {{default: claude, description: Who reviews}}

steps:
  - id: diff
    run: git diff HEAD

  - if: not steps.diff.stdout | trim
    stop: Nothing has changed.

  - id: review
    agent: "{{{{ inputs.agent }}}}"
    prompt: |
      Find mistakes in this change. Change nothing.

      {{{{ steps.diff.stdout }}}}
    tools: {{deny: ["edit(**)", "execute(*)"]}}
    timeout: 10m
    # The answer must fit this JSON Schema; it is then steps.review.output.
    output:
      type: object
      required: [findings]
      properties:
        findings: {{type: array, items: {{type: string}}}}

outputs:
  findings: "{{{{ steps.review.output.findings }}}}"
"""

_APPROVAL = """\
# A workflow: it asks before it does something, and stops if the answer is no.
name: {name}
description: Tag a release, after a question

steps:
  - id: last
    run: git describe --tags --abbrev=0
    on_error: continue         # there may be no tag yet

  - id: version
    ask: "Which version comes after {{{{ steps.last.stdout | trim or 'nothing' }}}}?"
    pattern: "v[0-9]+\\\\.[0-9]+\\\\.[0-9]+"

  - id: gate
    approve: "Tag this commit as {{{{ steps.version.text }}}}?"
    on_deny: stop              # skip | fail | stop

  - id: tag
    run: git tag {{{{ steps.version.text }}}}
    once: true                 # after a crash in its midst it does not run again without a question

outputs:
  version: "{{{{ steps.version.text }}}}"
"""

TEMPLATES = {"commands": _COMMANDS, "agent": _AGENT, "approval": _APPROVAL}


def write_new(
    library: Library, name: str, template: str, program: str, trust: Trust, *, is_users: bool
) -> str:
    """Write an example, and return where it is, as it is seen from here.

    It is trusted: what is in it came from here, and the user has asked for it.
    """
    from coupler.cli.workflows.check import seen_from
    from coupler.workflow.language.keys import FREE_NAME_PATTERN, FREE_NAME_WORDS

    if not re.fullmatch(FREE_NAME_PATTERN, name) or name.endswith((".yaml", ".yml")):
        refuse(f"a workflow's name must be {FREE_NAME_WORDS}, without .yaml", program)
    if taken := next((found for found in library.all() if found.name == name), None):
        refuse(f"there is a workflow `{name}` already, in {taken.file}: choose another name", program, FAILED)
    file = Path(_directory(library, program, is_users=is_users), f"{name}.yaml")
    content = TEMPLATES[template].format(name=name).encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        refuse(f"{file} is there already: choose another name", program, FAILED)
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}", program, FAILED)
    trust.trust(os.path.realpath(file), content)
    return seen_from(library.directory, str(file))


def _directory(library: Library, program: str, *, is_users: bool) -> str:
    from coupler.config.lookup import project_directory

    if is_users:
        if library.user_directory is None:
            refuse("this user has no home directory: leave out --user", program, FAILED)
        return library.user_directory
    if library.project is not None:
        return library.project.path
    return str(Path(project_directory(library.directory, os.environ), ".coupler", "workflows"))
