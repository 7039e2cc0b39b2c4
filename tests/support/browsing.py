"""A headless Chromium for the tests of the pages. They are skipped where there is none."""

import contextlib
import shutil
import urllib.parse

import pytest

from waiting import limit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Watch:
    """What a page did wrong: errors on the console, requests to other hosts."""

    def __init__(self, page, own):
        self.errors, self.foreign, self.requests = [], [], []
        self._own = {urllib.parse.urlsplit(url).netloc for url in own}
        page.on("console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._note)

    def _note(self, request):
        parts = urllib.parse.urlsplit(request.url)
        self.requests.append(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc not in self._own:
            self.foreign.append(request.url)

    def is_clean(self):
        assert not self.errors, self.errors
        assert not self.foreign, self.foreign


@contextlib.contextmanager
def browser(*flags):
    if CHROMIUM is None:
        pytest.skip("no chromium is installed (Debian's package chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        # Without a sandbox, because tests often run as root. Only pages of our own server are opened.
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        try:
            yield opened
        finally:
            opened.close()


@contextlib.contextmanager
def page_of(opened, *own, **options):
    """A page in a context of its own. `own`: the servers' addresses that it may talk to."""
    context = opened.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(limit(15) * 1000)
    page = context.new_page()
    page.watch = Watch(page, own)
    try:
        yield page
    finally:
        context.close()


def luminance(colour):
    parts = [float(part) for part in colour[colour.index("(") + 1:colour.index(")")].split(",")[:3]]
    linear = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """The contrast of two colours that getComputedStyle has returned, as WCAG 2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# Every element that shows text of its own, with its colour and the ground behind it.
TEXTS = """() => {
  const out = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    const box = element.getBoundingClientRect();
    if (!own || !box.width || !box.height || element.matches(":disabled, .skip, noscript, option")) continue;
    let ground = element;
    while (ground && /^(transparent|rgba\\(0, 0, 0, 0\\))$/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
    out.push([element.tagName + "." + element.className, element.textContent.trim().slice(0, 30),
      getComputedStyle(element).color, getComputedStyle(ground || document.body).backgroundColor]);
  }
  return out;
}"""


def low_contrasts(page, least=4.5):
    return [each for each in page.evaluate(TEXTS) if contrast(each[2], each[3]) < least]
