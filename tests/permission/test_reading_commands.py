"""Commands that a mode runs in which nothing may change: those that are known to only read, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from coupler.permission.rules import ModeRules
from permission.parts import Bench
from tables import table

PLAN = ModeRules.parse("Plan", allow=["search"], deny=["edit", "delete", "move"], only_reading=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "app"
    (directory / "src").mkdir(parents=True)
    (directory / "src" / "a.py").write_text("x")
    (directory / "README.md").write_text("x")
    (directory / ".env").write_text("TOKEN=x")
    (directory / "out").symlink_to(tmp_path)
    return directory


def decided(project: Path, command: str, **rules: list[str]) -> str:
    bench = Bench(project)
    permissions = bench.permissions(**rules)
    permissions.follow(lambda: PLAN)
    return permissions.judge(bench.action("execute", command=command)).decision


READING = """\
git log
git log --oneline -20 -- src/a.py
git --no-pager log -p -S 'def f' --since='2 weeks ago'
git diff
git diff HEAD~3 -- src/*.py
git diff --cached --stat
git diff $(git merge-base HEAD main)
git show HEAD:src/a.py
git status --short --branch
git status --ignore-submodules=all
git blame -L 10,20 src/a.py
git ls-files 'src/**'
git grep -n 'os.path' -- '*.py'
git branch
git branch -a -vv
git branch --list 'fix/*'
git branch --contains HEAD
git tag --list
git tag -n3
git remote -v
git stash list
git stash show -p
git reflog
git worktree list
git rev-parse --show-toplevel
git shortlog -sn HEAD
git for-each-ref --sort=-committerdate --format='%(refname)'
git log --text
ls -la
ls src/*.py
rg -n 'import os' src
rg --files -g '*.py'
rg -tpy --pretty x
cat README.md src/a.py
cat src/a.py | head -20 | wc -l
wc -l src/*.py
head -n 5 README.md; tail -n 5 README.md
grep -n x README.md src/a.py
grep -c '' src/a.py || echo none
find . -name '*.py' -newer README.md -type f
find src -maxdepth 2 -print0
sed -n '1,5p' README.md
sed -e 's/a/b/' README.md
awk '{print $1}' README.md
awk -F: '{ n += 1 } END { print n }' README.md
sort -u README.md
sort -t, -k2,2n README.md
sort -nrk2 README.md
sort README.md | uniq -c
cut -d, -f1 README.md | sort | uniq -c | sort -rn | head
diff README.md src/a.py
cd src && ls
echo hello
echo "$HOME"
printf '%s\\n' a b
test -f README.md && echo yes
[ -d src ] && ls src
jq .name package.json
du -sh src
tree -L 2
file -b README.md
stat README.md
date +%F
pwd
which git
command -v rg
cat README.md 2>/dev/null
cat missing 2>&1 | head
wc -l < README.md
for f in src/a.py README.md; do head -1 $f; done
if test -f README.md; then cat README.md; fi
timeout 5 git log
time ls
LC_ALL=C sort README.md
FOO=1 ls
(cd src; ls)
! grep -q x README.md
cat <<< hello
diff -u README.md src/a.py
"""

ASKED = """\
cat .env
cat /etc/hosts
cat ~/.ssh/id_rsa
head -1 ../other.txt
cat out/x.txt
ls /usr/include
grep x /etc/passwd
wc -l < /etc/hosts
cat /proc/self/environ
git diff --no-index README.md /etc/hosts
git show HEAD:.env
rg x ..
cat .e*
for f in .env; do cat $f; done
"""

CHANGING = r"""
make test
python x.py
python -c 'print(1)'
npm ls
./cat x
/tmp/git log
bin/ls
tool
touch x
rm README.md
mkdir x
tee x < README.md
cp README.md x
cat README.md > x
cat README.md >> x
cat README.md >| x
cat README.md &> x
cat README.md 2> x
echo x > src/a.py
echo x > $F
ls > /dev/tcp/1.2.3.4/80
cat < README.md > x
: > README.md
> README.md
cat README.md | tee x
cat README.md | sh
ls | xargs rm
ls | xargs cat
ls | xargs -I{} cp {} x
find . -delete
find . -name x -exec rm {} ;
find . -name x -exec cat {} +
find . -execdir sh -c x \;
find . -ok rm {} \;
find . -fprint x
find . -fprintf x %p
find . -fls x
find . $X
find . "$(echo -delete)"
find . -{delete,print}
find . -dele''te
find / -name x
sed -i s/a/b/ README.md
sed -i.bak s/a/b/ README.md
sed -ni p README.md
sed -Ei s/a/b/ README.md
sed --in-place s/a/b/ README.md
sed --in-p s/a/b/ README.md
sed -n 'w x' README.md
sed 's/a/b/w x' README.md
sed '1e rm x' README.md
sed 's/x/y/e' README.md
sed -f x README.md
sed -s''i p README.md
awk 'BEGIN { system("rm x") }'
awk '{ print > "x" }' README.md
awk '{ print | "sh" }' README.md
awk -f x README.md
awk 'BEGIN { print ENVIRON["X"] }'
gawk -i inplace '{print}' README.md
sort -o README.md README.md
sort -ox README.md
sort -uo x README.md
sort --output=x README.md
sort --outp x README.md
sort --compress-program=./x README.md
sort -T . README.md
sort -k1 $X
sort --files0-from=x
wc --files0-from=x
uniq README.md x
date -s 2020-01-01
date 01010101
date -d 01010101 01010101
tree -o x
tree -R -L 2
file -C -m x
rg --pre ./x foo
rg --pre=./x foo
rg --p''re ./x foo
rg --hostname-bin ./x foo
rg -z foo
rg --search-zip foo
rg --hidden foo
rg -uu foo
rg -. foo
rg --no-ignore foo
rg -L foo
rg $OPTIONS foo
grep -r foo .
grep -rn foo .
grep -nR foo .
grep --recursive foo .
grep --rec foo .
grep -d recurse foo .
grep --directories=recurse foo .
git commit -m x
git add .
git push
git fetch
git pull
git checkout main
git switch main
git restore README.md
git reset --hard
git clean -fd
git stash
git stash pop
git stash push
git config --list
git config user.name x
git branch new
git branch -d old
git branch -D old
git branch -m a b
git branch -f main HEAD
git branch --edit-description
git branch -u origin/main
git branch -l new
git branch --unset-upstream
git tag v1
git tag -d v1
git tag -f v1
git tag -a v1 -m x
git remote add x y
git remote -v update
git remote show origin
git remote update
git reflog expire --all
git reflog delete HEAD@{1}
git worktree add x
git submodule status
git submodule foreach ls
git bisect start
git rebase main
git merge main
git gc
git archive HEAD
git log --output=x
git log --output x
git log --outp=x
git diff --output=x
git diff --out''put=x
git show --output x
git diff --ext-diff
git log -p --ext
git diff --textconv
git cat-file --textconv HEAD:x
git cat-file --filters HEAD:x
git log --show-signature
git diff --submodule=diff
git diff --ignore-submodules=none
git status --ignore-sub=none
git grep -O x
git grep -nO x
git grep -Oless x
git grep --open-files-in-pager=./x x
git grep --open x
git grep --recurse-submodules x
git grep --no-index x
git grep --untracked x
git describe --dirty
git -c core.pager=./x log
git -c alias.log=!x log
git -ccore.fsmonitor=./x status
git -C /tmp log
git -C . log
git --git-dir=x log
git --work-tree=/ status
git --exec-path=. log
git --config-env=core.pager=X log
git -p log
git --paginate log
git l
git $X
git log $X
git log $(cat x)
git lo''g --outpu''t=x
git "lo"g --output=x
cd src && git log
GIT_EXTERNAL_DIFF=./x git diff
GIT_PAGER=./x git log
PAGER=./x git log
GIT_DIR=x git log
GIT_CONFIG_COUNT=1 git log
LD_PRELOAD=./x.so ls
PATH=.:$PATH ls
PATH=. git log
RIPGREP_CONFIG_PATH=x rg y
env ls
env GIT_PAGER=./x git log
env
printenv
set
echo $GITHUB_TOKEN
export X=1
X=./x; $X
$X
$(cat x)
`cat x`
eval ls
bash -c ls
sh -c 'git log'
bash x.sh
source x
. x
exec ls
nohup ls
sudo ls
xargs ls
ls $(rm x)
cat `touch x`
echo "$(touch x)"
cat <(touch x)
diff <(git show HEAD:README.md) README.md
cat README.md >(sh)
ls; rm x
ls && rm x
ls || rm x
ls & rm x
ls | rm x
ls
rm x
(ls; rm x)
{ ls; rm x; }
if rm x; then ls; fi
while rm x; do ls; done
for f in a; do rm $f; done
case x in x) rm x;; esac
f() { rm x; }; f
alias ls=rm
function ls { rm x; }
cat $X
head $(ls)
cat "$1"
jq -n '$ENV'
jq -n env
tail -n1 $(git ls-files)
curl https://example.com
wget x
ssh host ls
docker ps
kill 1
less README.md
vim README.md
man ls
tar tf x
xxd README.md x
dd if=README.md
tail -f x &> y
parallel ls
watch ls
strace ls
npx x
uv run x
cargo tree
go env
\rm x
'rm' x
"r"m x
r""m x
$'rm' x
command rm x
builtin eval x
timeout 5 rm x
timeout 5 sh -c 'rm x'
time rm x
nice rm x
/bin/rm x
ls\
; rm x
cat README.md #\
rm x
"""


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@table("command", rows(READING))
def test_what_only_reads_runs_unasked(project: Path, command: str) -> None:
    assert decided(project, command) == "allow", command


@table("command", rows(ASKED))
def test_what_reads_secrets_or_files_elsewhere_is_asked_about(project: Path, command: str) -> None:
    assert decided(project, command) == "ask", command


CONTINUED = {"ls", "rm x", "ls\\", "; rm x", "cat README.md #\\"}


@table("command", [each for each in rows(CHANGING) if each not in CONTINUED])
def test_everything_else_is_denied_and_not_asked_about(project: Path, command: str) -> None:
    assert decided(project, command) == "deny", command


@table(
    "command", ["ls\nrm x", "ls\\\n; rm x", "cat README.md #\\\nrm x", "ls\r\nrm x", "git log \\\n--output=x"]
)
def test_lines_do_not_hide_a_command(project: Path, command: str) -> None:
    assert decided(project, command) == "deny", command


def test_no_rule_and_no_answer_lets_the_mode_run_more(project: Path) -> None:
    assert decided(project, "make test", allow=["execute(make *)", "*"]) == "deny"
    assert decided(project, "rm -rf /", allow=["*"]) == "deny"


def test_rules_hold_for_what_only_reads(project: Path) -> None:
    assert decided(project, "git log", deny=["execute(git *)"]) == "deny"
    assert decided(project, "git log", ask=["execute(git *)"]) == "ask"
    assert decided(project, "cat README.md", deny=["read(*.md)"]) == "deny"
    assert decided(project, "cat /etc/hosts", allow=["read(/etc/hosts)"]) == "allow"
    assert decided(project, "cat .env", allow=["read(.env)"]) == "allow"


def test_a_refusal_says_what_the_mode_runs(project: Path) -> None:
    bench = Bench(project)
    permissions = bench.permissions()
    permissions.follow(lambda: PLAN)

    verdict = permissions.judge(bench.action("execute", command="git log && make test"))

    assert verdict.reason == (
        "`make test` is not known to only read; the mode 'Plan' runs only commands that read"
    )


def test_a_tool_that_does_not_say_what_it_runs_is_denied(project: Path) -> None:
    bench = Bench(project)
    permissions = bench.permissions(allow=["*"])
    permissions.follow(lambda: PLAN)
    assert permissions.judge(bench.action("execute", name="run_tests")).decision == "deny"
