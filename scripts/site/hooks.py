"""What the generator of the documentation's site does besides its own work (see properdocs.yml).

The pages are written for a reader of the repository: they link to files outside of docs/, and to folders. The site
gets such files, too, as repository/PATH, so that one link works in both places:

- pages (*.md) become pages of the site, with their links;
- other files are copied as they are;
- a link to a folder leads to the folder's README.md, or else to a list of its files.

docs/README.md is the page all-pages of the site, since index.md is its first page. A link to something that is not in
the repository stays as it is, and the strict build refuses it."""
import fnmatch
import pathlib
import posixpath
import re
import subprocess

from properdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTSIDE = "repository/"
RENAMED = {"docs/README.md": "all-pages.md"}
SHIM = "assets/iframe-worker.js"
SEARCH_WORKER = "assets/javascripts/workers/search.*.js"
CODE = re.compile(r"(?ms)^ *```.*?^ *```[^\n]*$|`[^`\n]*`")
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
INFO = re.compile(r"(?m)^( *```[\w+-]+) [^\n`]+$")  # what follows the language, as in ```text dev
MERMAID = re.compile(r"(?ms)^```mermaid\n.*?^```\n")
# Pages that answer a reader's question come before pages that record history.
LESS_WANTED = {"decisions/*": 0.2, "repository/CHANGELOG.md": 0.2, "repository/CONTRIBUTING.md": 0.3, "campaigns.md": 0.4,
               "source-tour.md": 0.4, "architecture.md": 0.5, "all-pages.md": 0.5, "repository/examples/*": 0.5,
               "from-t*.md": 0.6}


def tracked():
    """Returns the names of the repository's files, also of new ones that git does not ignore."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, text=True,
                            capture_output=True).stdout.split("\n")
    return {name for name in listed if name and (ROOT / name).is_file()}


def page_of(name):
    """Returns where the repository's file `name` is among the sources of the site."""
    if name in RENAMED:
        return RENAMED[name]
    return name[len("docs/"):] if name.startswith("docs/") else OUTSIDE + name


def name_of(page):
    """Returns the repository's name of a source of the site."""
    for name, renamed in RENAMED.items():
        if page == renamed:
            return name
    return page[len(OUTSIDE):] if page.startswith(OUTSIDE) else "docs/" + page


def resolved(name, target, files):
    """Returns the repository's file that a link `target` on the page `name` means, or None if there is none. A folder
    without README.md is named with a slash at its end."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if path in files:
        return path
    if f"{path}/README.md" in files:
        return f"{path}/README.md"
    return f"{path}/" if any(each.startswith(f"{path}/") for each in files) else None


def outside_code(text, change):
    """Returns the text with `change` applied to it while a mark stands for each piece of code."""
    kept = []

    def hide(code):
        kept.append(code.group(0))
        return f"\0{len(kept) - 1}\0"
    return re.sub(r"\0(\d+)\0", lambda mark: kept[int(mark.group(1))], change(CODE.sub(hide, text)))


def targets(name, text, files):
    found = set()

    def note(plain):
        found.update(resolved(name, match.group(2), files) for match in LINK.finditer(plain))
        return plain
    outside_code(text, note)
    return {target for target in found if target}


def linked(name, text, files):
    """Returns the text of the page `name` with the links that the site needs."""
    here = posixpath.dirname(page_of(name))

    def link(match):
        target = resolved(name, match.group(2), files)
        if not target:
            return match.group(0)
        page = page_of(target) if not target.endswith("/") else page_of(f"{target}index.md")
        return f"{match.group(1)}{posixpath.relpath(page, here or '.')}{match.group(3) or ''}{match.group(4)}"
    return outside_code(INFO.sub(r"\1", MERMAID.sub("", text)), lambda plain: LINK.sub(link, plain))


def folder_page(folder, files):
    """Returns a page that lists the files of a folder without README.md."""
    names = sorted(name[len(folder):] for name in files if name.startswith(folder))
    return f"# {folder}\n\nFiles of this folder in the repository:\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"


def linked_files():
    """Returns all files and folders that the site has: the pages of docs/, those outside of it that the navigation may
    name, and everything to which these pages link, directly or by other pages."""
    known = tracked()
    left = [name for name in known if name.endswith(".md") and re.match(r"docs/|examples/|[A-Z]+\.md$", name)]
    seen = set(left)
    while left:
        name = left.pop()
        if name.endswith(".md"):
            new = targets(name, (ROOT / name).read_text(), known) - seen
            seen |= new
            left += new
    return seen


def on_config(config):
    """Replaces the patterns of the navigation by the pages that they match."""
    pages = sorted((page_of(f"{name}index.md" if name.endswith("/") else name) for name in linked_files()
                    if name.endswith((".md", "/"))), key=lambda page: (page.replace("README.md", ""), page))

    def expanded(entry):
        (title, what), = entry.items()
        if isinstance(what, list):
            return {title: [expanded(each) for each in what]}
        return {title: [page for page in pages if fnmatch.fnmatch(page, what)]} if "*" in what else entry
    config.nav = [expanded(entry) for entry in config.nav]
    return config


def on_files(files, config):
    """Adds the files beside docs/ and what else the site has."""
    known = tracked()
    for name in sorted(linked_files()):
        if name.endswith("/"):
            add(files, config, page_of(f"{name}index.md"), folder_page(name, known))
        elif name in RENAMED or not name.startswith("docs/"):
            path = ROOT / name
            add(files, config, page_of(name), path.read_text() if path.suffix == ".md" else path.read_bytes())
    add(files, config, SHIM, (pathlib.Path(__file__).parent / "iframe-worker.js").read_text())
    return files


def add(files, config, page, content):
    if files.get_file_from_path(page) is None:
        files.append(File.generated(config, page, content=content))


def on_page_markdown(markdown, page, config, files):
    """Changes the links of a page, and says how much the search wants it."""
    uri = page.file.src_uri
    boost = [value for pattern, value in LESS_WANTED.items() if fnmatch.fnmatch(uri, pattern)]
    if boost:
        page.meta["search"] = {"boost": boost[0]}
    return linked(name_of(uri), markdown, tracked_once())


def tracked_once(kept=[]):
    if not kept:
        kept.append(tracked())
    return kept[0]


def on_post_build(config):
    """Mends the search. Its library, lunr 2.3.9, merges nodes of its tree of words that have the same description. A
    description is, for each next letter, that letter and the number of the node behind it, with nothing between: "a" with
    node 1 and "2" with node 3 give "a123", and "a" with node 123 gives the same. Where pages have many numbers, different
    nodes are merged by that, and the search fails for some words."""
    [worker] = pathlib.Path(config.site_dir).glob(SEARCH_WORKER)
    script = worker.read_text()
    if script.count("e=e+s+o.id}") != 1:
        raise SystemExit(f"scripts/site/hooks.py: {worker.name} is not the script whose mistake it mends")
    worker.write_text(script.replace("e=e+s+o.id}", 'e=e+s+o.id+","}'))
