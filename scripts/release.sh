#!/usr/bin/env bash
# Makes the commit and the tag of a release, here and only here: pushing both is left to you.
#   scripts/release.sh VERSION              VERSION is MAJOR.MINOR.PATCH, such as 1.0.0
#   scripts/release.sh --dry-run VERSION    checks everything, says what would be done, changes nothing
#   scripts/release.sh --tested VERSION     the tests have passed for this commit elsewhere
# The release is made of a clean checkout of main for which scripts/test.sh has passed. The commit moves what
# CHANGELOG.md has under "Unreleased" below the new version and the date (of SOURCE_DATE_EPOCH, or today), and sets the
# version in the files that have it. The tag vVERSION has that part of CHANGELOG.md as its message, and
# build/release-notes.md has it, too. Exit 0: made. 1: refused, and nothing was changed. 2: wrong options.
set -euo pipefail
cd "$(dirname "$0")/.."

dry= tested= version=
for arg in "$@"; do
    case $arg in
    --dry-run) dry=1 ;;
    --tested) tested=1 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "scripts/release.sh: unknown argument $arg (--help lists the options)" >&2; exit 2 ;;
    *) [ -z "$version" ] || { echo "scripts/release.sh: one version, not \"$version\" and \"$arg\"" >&2; exit 2; }
        version=$arg ;;
    esac
done
[ -n "$version" ] || { echo "scripts/release.sh: which version? (--help lists the options)" >&2; exit 2; }

refuse() {
    echo "scripts/release.sh: $*" >&2
    exit 1
}

# `files check` prints the version of this tree and what CHANGELOG.md has under "Unreleased", and
# `files write VERSION DATE` sets the one and moves the other. Errors are for people.
files() {
    python3 - "$@" <<'PYTHON'
import re
import sys

# Where the version stands, and what is before and after it there.
PLACES = [("CMakeLists.txt", "project(continuo VERSION ", " "),
          ("python/continuo/__init__.py", '__version__ = "', '"'),
          ("clients/python/continuo_client/__init__.py", '__version__ = "', '"'),
          ("clients/python/pyproject.toml", 'version = "', '"'),
          ("docs/install.md", "continuo_", "_amd64.deb"),
          ("docs/install.md", "continuo-", "-cp39-"),
          ("docs/install.md", "continuo-", ".dist-info"),
          ("docs/install.md", "continuo-", "-torch.tar"),
          ("docs/install.md", "continuo_torch-", "-py3-"),
          ("docs/install.md", "continuo_torchserve-", "-py3-"),
          ("docs/install.md", "continuo-", "-slim.tar"),
          ("docs/install.md", "continuo-", "-python.tar"),
          ("docs/install.md", "continuo:", "-slim")]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def refuse(why):
    sys.exit(f"scripts/release.sh: {why}")


found = {}
for path, before, after in PLACES:
    pattern = re.escape(before) + r"(\d+\.\d+\.\d+)" + re.escape(after)
    for version in re.findall(pattern, read(path)) or refuse(f'{path} has no version behind "{before}"'):
        first = next(iter(found.items()), (path, version))
        if version != first[1]:
            refuse(f"the versions differ: {first[0]} has {first[1]}, and {path} has {version}")
        found[path] = version
    if sys.argv[1] == "write":
        write(path, re.sub(pattern, before + sys.argv[2] + after, read(path)))

parts = re.split(r"^## Unreleased\n", read("CHANGELOG.md"), flags=re.M)
if len(parts) != 2:
    refuse(f'CHANGELOG.md has {len(parts) - 1} headings "## Unreleased" instead of one')
following = re.search(r"^## ", parts[1], re.M)
end = following.start() if following else len(parts[1])
section, rest = parts[1][:end].strip(), parts[1][end:]
if not re.search(r"^- \S", section, re.M):
    refuse('CHANGELOG.md has no entries under "Unreleased", so there is nothing to release')
if sys.argv[1] == "write":
    heading = f"## {sys.argv[2]} ({sys.argv[3]})"
    write("CHANGELOG.md", f"{parts[0]}## Unreleased\n\n{heading}\n\n{section}\n" + (rest and "\n" + rest))
else:
    print(found["CMakeLists.txt"], section, sep="\n")
PYTHON
}

newest_of() { printf '%s\n' "$@" | sort -V | tail -n 1; }

number='(0|[1-9][0-9]*)'
[[ $version =~ ^$number\.$number\.$number$ ]] ||
    refuse "the version \"$version\" is not MAJOR.MINOR.PATCH, such as 1.0.0 (the tag gets the \"v\" by itself)"
tag=v$version

[ "$(git rev-parse --show-toplevel)" = "$(pwd -P)" ] || refuse "$PWD is not the root of a git checkout"
branch=$(git symbolic-ref --short -q HEAD || echo "no branch")
[ "$branch" = main ] || refuse "this checkout is on $branch; a release is made on main"
changed=$(git status --porcelain)
[ -z "$changed" ] || refuse "the tree has changes that are not committed:
$changed"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null ||
    refuse "the tag $tag exists already, at commit $(git rev-parse --short "$tag^{commit}"); take another version"
latest=$(git tag --list 'v[0-9]*' | sed 's/^v//' | sort -V | tail -n 1)
[ -z "$latest" ] || [ "$(newest_of "$latest" "$version")" = "$version" ] ||
    refuse "the version $version is lower than $latest, which has been released"

notes=$(files check) || exit 1
current=${notes%%$'\n'*} notes=${notes#*$'\n'}
[ "$(newest_of "$current" "$version")" = "$version" ] ||
    refuse "the version $version is lower than $current, which CMakeLists.txt has"

commit=$(git rev-parse HEAD)
if [ -z "$tested" ] && [ "$(cat build/tested 2>/dev/null)" != "$commit" ]; then
    refuse "scripts/test.sh has not passed here for commit ${commit:0:12}; run it," \
        "or say --tested if the tests of this commit have passed elsewhere"
fi

date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%d)
notes=$(printf '# Continuo %s\n\nReleased on %s.\n\n%s' "$version" "$date" "$notes")
if [ -n "$dry" ]; then
    echo "release: $version could be made of commit ${commit:0:12}; nothing was changed"
    echo "release: it would set the version, which is $current now, and make a commit and the tag $tag:"
    printf '\n%s\n' "$notes"
    exit 0
fi

# Until the commit is made, a failure leaves the tree as it was; if no tag can be made, the commit goes, too.
trap 'git reset -q --hard "$commit"; refuse "git failed, and the tree is as it was"' ERR
files write "$version" "$date"
git commit -q -a -m "release: $version"
git tag -a "$tag" --cleanup=whitespace -F - <<<"$notes" # the usual clean-up would take headings for comments
trap - ERR
mkdir -p build
printf '%s\n' "$notes" >build/release-notes.md
echo "release: made commit $(git rev-parse --short HEAD) and tag $tag; build/release-notes.md has the notes"
echo "release: nothing was pushed; publish it with: git push --atomic origin main $tag"
