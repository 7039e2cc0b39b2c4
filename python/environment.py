"""Makes the environment of a Python model: a venv with the packages of its requirements file.

The server runs this file with the model's interpreter, in the model's folder:

    PYTHON environment.py LABEL identify
    PYTHON environment.py LABEL build PLACE REQUIREMENTS [WHEELS]

Descriptor 3 is a socket to the server. Lines go there: "identity TEXT", "step TEXT" and, before the
exit status 1, "failed PACKAGE<tab>TEXT". What pip prints goes to standard output. When the server
is gone, the socket ends, and this process and all of its children are killed.

This file is read by any Python, also by one that is too old: then the server is told so.
"""

import os
import re
import signal
import subprocess
import sys
import threading

SOCKET = 3
OLDEST = (3, 9)
LINE_MAX = 700

# How pip names the package that it could not install.
PACKAGE_PATTERNS = (
    r"No matching distribution found for (\S+)",
    r"Could not find a version that satisfies the requirement (\S+)",
    r"Failed building wheel for (\S+)",
    r"Failed to build installable wheels for some pyproject\.toml based projects \(?([^\s),]+)",
    r"Cannot install (.+?) because",
    r"Invalid requirement: '?([^'\s]+)",
    r"^\s+(\S+) from \S+.*:$",  # the line above the hashes that do not match
)
# pip variables that would lead it away from the new environment.
LEFT_OUT = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_EDITABLE")


class Failed(Exception):
    def __init__(self, package, text):
        Exception.__init__(self, text)
        self.package = package


def tell(word, text):
    line = (word + " " + text.replace("\n", " "))[:LINE_MAX] + "\n"
    try:
        os.write(SOCKET, line.encode("utf-8", "replace"))
    except OSError:
        pass


def end_with_the_server():
    """Waits for the end of the socket, which is the end of the server."""
    try:
        while os.read(SOCKET, 100):
            pass
    except OSError:
        pass
    os.killpg(0, signal.SIGKILL)


def identity():
    """What makes an environment of this interpreter unusable with another one, as one line."""
    import sysconfig

    return " ".join((sys.implementation.cache_tag or sys.implementation.name,
                     sysconfig.get_platform(), sys.prefix, sys.base_prefix))


def parent_venv():
    """(folders with packages, sees the system's packages) of the venv that this interpreter belongs
    to. Without a venv there are no folders: the new environment sees all that this one sees."""
    import sysconfig

    if sys.prefix == sys.base_prefix:
        return [], True
    folders = []
    for key in ("purelib", "platlib"):
        folder = sysconfig.get_path(key)
        if folder not in folders:
            folders.append(folder)
    try:
        with open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        text = ""
    sees = re.search(r"(?im)^include-system-site-packages\s*=\s*true\s*$", text)
    return folders, bool(sees)


def make_venv(place):
    """Makes a venv that sees the packages of this interpreter, and returns its interpreter. A venv
    of a venv would see only the packages of the interpreter below both."""
    import venv

    folders, system = parent_venv()
    builder = venv.EnvBuilder(system_site_packages=system, symlinks=True, with_pip=False)
    builder.create(place)
    if folders:
        site_packages = os.path.join(place, "lib", "python%d.%d" % sys.version_info[:2],
                                     "site-packages")
        with open(os.path.join(site_packages, "continuo_parent.pth"), "w",
                  encoding="utf-8") as file:
            for folder in folders:
                file.write("import site; site.addsitedir(%r)\n" % folder)
    return os.path.join(place, "bin", "python")


def has_pip(python):
    return subprocess.call([python, "-c", "import pip"], stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL) == 0


def find_pip(python):
    """The new environment sees the pip of its parent; if there is none, it gets one of its own."""
    if has_pip(python):
        return
    tell("step", "installing pip, which this interpreter does not have")
    subprocess.call([python, "-m", "ensurepip", "--default-pip"], stdin=subprocess.DEVNULL)
    if not has_pip(python):
        raise Failed("", "%s has neither pip nor ensurepip: install one of them, on Debian with "
                         "apt-get install python3-pip" % sys.executable)


def package_in(line):
    for pattern in PACKAGE_PATTERNS:
        found = re.search(pattern, line)
        if found:
            return found.group(1)
    return ""


class Output:
    """What pip says: it is printed, the steps are told, and the first error is kept."""

    def __init__(self):
        self.package = self.last = self.error = ""

    def take(self, line):
        line = line.rstrip()
        if not line:
            return
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        text = line.strip()
        begun = re.match(r"(?:Collecting|Processing|Obtaining) (\S+)", text)
        if begun:
            self.last = begun.group(1)
        if begun or re.match(r"Downloading|Building wheel|Installing|Successfully", text):
            tell("step", text)
        self.package = self.package or package_in(line)
        if not self.error and (text.startswith("ERROR: ") or text.startswith("error: ")):
            self.error = text[7:]


def pip_command(python, requirements, wheels):
    command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color",
               "install", "--progress-bar", "off", "-r", requirements]
    return command + (["--no-index", "--find-links", wheels] if wheels else [])


def install(python, requirements, wheels):
    environment = {key: value for key, value in os.environ.items() if key not in LEFT_OUT}
    environment["PYTHONUNBUFFERED"] = "1"
    output = Output()
    pip = subprocess.Popen(pip_command(python, requirements, wheels), env=environment,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
    for line in pip.stdout:
        output.take(line)
    status = pip.wait()
    if status:
        raise Failed(output.package or output.last,
                     output.error or "pip ended with status %d" % status)


def build(place, requirements, wheels=""):
    if requirements.endswith(".toml"):
        raise Failed("", "%s is not a requirements file: write the locked versions as a "
                         "requirements file, with hashes if you like (uv export, pip-compile and "
                         "poetry export do), and name that in the archive" % requirements)
    tell("step", "making the environment")
    try:
        python = make_venv(place)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed("", "the environment cannot be made: %s" % error)
    find_pip(python)
    tell("step", "installing the packages of %s" % requirements)
    install(python, requirements, wheels)


def main(arguments):
    watcher = threading.Thread(target=end_with_the_server)
    watcher.daemon = True
    watcher.start()
    if sys.version_info < OLDEST:
        tell("failed", "\t%s is Python %d.%d, and Python models need 3.9 or later: name another "
                       "interpreter with --python or with the key python of the model's YAML" % (
                           (sys.executable,) + tuple(sys.version_info[:2])))
        return 1
    try:
        if arguments[:1] == ["identify"]:
            tell("identity", identity())
        else:
            build(*arguments[1:])
    except Failed as failure:
        tell("failed", "%s\t%s" % (failure.package, failure))
        return 1
    except ImportError as error:
        tell("failed", "\t%s cannot make environments: %s; on Debian apt-get install python3-venv "
                       "helps" % (sys.executable, error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
