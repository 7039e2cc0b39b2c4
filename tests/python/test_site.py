"""The documentation's site: it is built without a warning, loads nothing from elsewhere, and its search answers the
questions of a stranger.

The tests need the generator (scripts/site.sh --install), and those of the search also Node."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATOR = ROOT / ".venv-site" / "bin" / "properdocs"
SEARCH = pathlib.Path(__file__).with_name("site_search.mjs")
FIRST = 3  # a reader looks at this many results

# What a stranger would type, and the pages of which one must be among the first results.
QUESTIONS = {
    "how to write a handler": {"handlers.html"},
    "call from Python with retries": {"clients.html"},
    "behind nginx": {"behind-a-proxy.html"},
    "why was a step refused": {"troubleshooting.html"},
    "move a sequence to another server": {"sequences.html"},
    "What does queue_full mean?": {"troubleshooting.html"},
    "what does it have that Triton does not": {"faq.html", "from-triton.html"},
    "install on Debian": {"install.html"},
    "full disk": {"operating.html"},
    "back up all states": {"operating.html"},
    "recommender session": {"cookbook.html", "repository/examples/python/recommender/index.html"},
    "agent memory": {"cookbook.html"},
    "TLS": {"operating.html", "shared-store.html"},
    "serve a PyTorch model": {"torch.html"},
    "authentication": {"keys.html"},
    "graceful shutdown": {"operating.html"},
    "health check": {"operating.html"},
    "two servers": {"shared-store.html"},
    "docker": {"install.html"},
}
TINY = """
site_name: Tiny
docs_dir: docs
site_dir: build/site
exclude_docs: /README.md
hooks: [scripts/site/hooks.py]
theme: {name: material, font: false}
extra: {polyfills: [assets/iframe-worker.js]}
plugins: [search, offline]
validation:
  nav: {omitted_files: warn, not_found: warn}
  links: {not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}
nav: [{Start: index.md}, {All: all-pages.md}, {Beside: repository/NOTES.md}, {Decisions: decisions/*.md}]
"""

needs_generator = pytest.mark.skipif(not GENERATOR.exists(), reason="scripts/site.sh --install was not run")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def build(root, to):
    return subprocess.run([GENERATOR, "build", "--strict", "--config-file", root / "properdocs.yml", "--site-dir", to], cwd=root,
                          capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    to = tmp_path_factory.mktemp("docs") / "site"
    run = build(ROOT, to)
    assert run.returncode == 0, run.stdout + run.stderr
    return to


@pytest.fixture
def tiny(tmp_path):
    """A repository with three pages whose links are right; a test adds one mistake."""
    for name, text in {
        "properdocs.yml": TINY,
        "NOTES.md": "# Notes\n\nSee [the start](docs/index.md#two-words).\n",
        "include/a.h": "int a;\n",
        "docs/README.md": "# All pages\n\n[Start](index.md)\n",
        "docs/index.md": "# Start\n\n## Two words\n\n[notes](../NOTES.md), [`a.h`](../include/a.h), [all](README.md#all-pages), "
                         "[one](decisions/0001.md)\n",
        "docs/decisions/0001.md": "# One\n\n[back](../index.md)\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(ROOT / "scripts" / "site", tmp_path / "scripts" / "site", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


@needs_generator
def test_links_of_the_repository_work_in_the_site(tiny):
    """The same link must work for a reader of the repository and for one of the site."""
    run = build(tiny, tiny / "site")
    assert run.returncode == 0, run.stdout + run.stderr
    start = (tiny / "site" / "index.html").read_text()
    for target in ("repository/NOTES.html", "repository/include/a.h", "all-pages.html#all-pages", "decisions/0001.html"):
        assert f'href="{target}"' in start, target
    assert 'href="../index.html#two-words"' in (tiny / "site/repository/NOTES.html").read_text()
    assert (tiny / "site/repository/include/a.h").read_text() == "int a;\n"


@needs_generator
@pytest.mark.parametrize("page,text,said", [
    ("docs/index.md", "[gone](gone.md)", "gone.md"),
    ("docs/index.md", "[gone](decisions/0001.md#gone)", "#gone"),
    ("docs/index.md", "[gone](../include/b.h)", "../include/b.h"),
    ("docs/index.md", "[gone](../src)", "../src"),
    ("NOTES.md", "[gone](docs/gone.md)", "docs/gone.md"),
    ("docs/orphan.md", "# Orphan", "orphan.md"),
    ("docs/index.md", "[more](../MORE.md)", "repository/MORE.md"),
])
def test_a_mistake_fails_the_build(tiny, page, text, said):
    """Broken links and forgotten pages are found when they are made, and not by a reader."""
    (tiny / "MORE.md").write_text("# More\n")
    with (tiny / page).open("a") as file:
        file.write(f"\n{text}\n")
    run = build(tiny, tiny / "site")
    assert run.returncode != 0
    assert said in run.stdout + run.stderr


@needs_generator
def test_the_site_loads_nothing_from_elsewhere(site):
    """Readers without a network see the same site, and nobody else learns what they read."""
    loads = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]+)"')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 90
    for page in pages:
        assert not loads.findall(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", sheet.read_text()), sheet


@needs_generator
def test_no_mark_of_markdown_is_left_on_a_page(site):
    """The site's reader of Markdown is stricter than a repository browser: it wants an empty line before a list."""
    left = re.compile(r"```|\n\| |\]\([^)\s]+\)|<p>(?:[^<]|<(?!/p>))*\n(?:- |\d+\. )")
    for page in site.rglob("*.html"):
        article = re.search(r"<article.*?</article", page.read_text(), re.S)
        text = re.sub(r"(?s)<pre.*?</pre>|<code.*?</code>", "", article.group()) if article else ""
        assert not (found := left.search(text)), f"{page}: {found.group()[-80:]}"


@needs_generator
def test_it_has_light_and_dark_colours(site):
    start = (site / "index.html").read_text()
    assert 'data-md-color-scheme="default"' in start and 'data-md-color-scheme="slate"' in start


@needs_generator
def test_each_error_word_has_its_anchor(site):
    """Programs and people link to troubleshooting.html#WORD."""
    words = re.findall(r'CN_ERROR\(\s*CN_E_\w+,\s*"(\w+)"', (ROOT / "core/errors/errors.def").read_text())
    page = (site / "troubleshooting.html").read_text()
    assert len(words) > 50
    assert [word for word in words if f'id="{word}"' not in page] == []


@needs_generator
@needs_node
def test_questions_of_a_stranger_find_their_page(site):
    run = subprocess.run(["node", SEARCH, site, *QUESTIONS], capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(run.stdout)
    missed = {question: found[question][:FIRST] for question, pages in QUESTIONS.items()
              if not pages & set(found[question][:FIRST])}
    assert missed == {}


@needs_generator
@needs_node
def test_the_search_loses_no_word(site):
    """The library of the search does, unless scripts/site/hooks.py mends it; a question then finds nothing."""
    words = pathlib.Path(__file__).with_name("site_words.mjs")
    run = subprocess.run(["node", words, site], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout == "0\n"


@needs_generator
@needs_node
def test_a_question_without_an_answer_finds_nothing(site):
    """Otherwise the test above would prove nothing."""
    run = subprocess.run(["node", SEARCH, site, "xylophone quartet"], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(run.stdout) == {"xylophone quartet": []}


def test_the_script_deletes_no_folder_with_other_files(tmp_path):
    """The generator empties the folder that it builds into, so a mistyped --to must not cost anybody's files."""
    (tmp_path / "thesis.txt").write_text("three years of work")
    run = subprocess.run([ROOT / "scripts" / "site.sh", "--to", tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "choose another folder" in run.stderr
    assert (tmp_path / "thesis.txt").exists()
