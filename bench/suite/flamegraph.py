"""A flame graph as one SVG file without scripts or outside files: each box is a function, as wide as its share of the
samples, and stands on its caller. The tool tip of a box has the figures. The input is what `perf script` prints."""

import collections
import html

WIDTH, ROW, PAD, TEXT_MIN, BOX_MIN = 1200, 16, 10, 34, 0.4
CHAR = 6.2  # average width of a character in px
OURS, KERNEL, LIBRARY, PROCESS = "#7986cb", "#ffb74d", "#a5d6a7", "#cfd8dc"


class Node:
    __slots__ = ("name", "kind", "samples", "below")

    def __init__(self, name, kind):
        self.name, self.kind, self.samples, self.below = name, kind, 0, {}


def kind_of(library):
    if "kernel" in library or library.startswith("[k"):
        return KERNEL
    return OURS if "continuo" in library else LIBRARY


def stacks(text):
    """Yields (process name, [(function, library), ...] from the outermost to the innermost) for each sample of
    `perf script -F comm,ip,sym,dso`."""
    comm, frames = None, []
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            if comm is not None and frames:
                yield comm, frames[::-1]
            comm, frames = None, []
        elif comm is None:
            comm = line.strip()
        else:
            words = line.strip().split(" ", 1)[-1]
            name, _, library = words.rpartition(" (")
            library = library.rstrip(")").rpartition("/")[2]
            frames.append((name.rpartition("+0x")[0] or name or "?", library))


def tree(samples):
    root = Node("all", PROCESS)
    alone = collections.Counter()
    for comm, frames in samples:
        root.samples += 1
        node = root
        for name, kind in [(comm, PROCESS), *((name, kind_of(library)) for name, library in frames)]:
            node = node.below.setdefault(name, Node(name, kind))
            node.samples += 1
        alone[comm, *frames[-1]] += 1
    return root, alone


def depth(node):
    return 1 + max(map(depth, node.below.values()), default=0)


def boxes(node, left, level, scale, out):
    width = node.samples * scale
    if width < BOX_MIN:
        return
    out.append((node, left, level, width))
    for name in sorted(node.below):
        boxes(node.below[name], left, level + 1, scale, out)
        left += node.below[name].samples * scale


def svg(root, title):
    """Returns the text of the SVG file."""
    levels = depth(root)
    height = levels * ROW + 3 * ROW + PAD
    found = []
    boxes(root, PAD, 0, (WIDTH - 2 * PAD) / max(root.samples, 1), found)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
             'font-family="monospace" font-size="10">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<text x="{PAD}" y="{ROW}" font-size="13">{html.escape(title)}</text>']
    for node, left, level, width in found:
        top = height - PAD - (level + 1) * ROW
        share = 100 * node.samples / max(root.samples, 1)
        lines.append(f'<g><title>{html.escape(node.name)}: {node.samples} samples, {share:.1f} %</title>'
                     f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" fill="{node.kind}"/>')
        if width >= TEXT_MIN:
            text = node.name[:int((width - 4) / CHAR)]
            lines.append(f'<text x="{left + 2:.1f}" y="{top + ROW - 5}">{html.escape(text)}</text>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"
