"""A web server from which archives are downloaded."""

import email.utils
import hashlib
import http.server
import pathlib
import threading
import urllib.parse


class Source(http.server.ThreadingHTTPServer):
    """A web server whose paths are set by a test."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.base = f"http://127.0.0.1:{self.server_port}"
        self.redirects = {}  # path -> target
        self.go_on = threading.Event()  # /slow/ waits for this in the middle
        self.requests = []
        self.answers = []  # status of each answer
        self.stamps = None  # "etag" or "date": how the server lets clients ask whether a file has changed
        self.broken = False  # answers 503 to everything
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # the tests have clients that leave


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # the name is the library's
        source = self.server
        source.requests.append(self.path)
        path = self.path.partition("?")[0]
        if source.broken:
            self.send_error(503)
            return
        if path in source.redirects:
            self.send_response(302)
            self.send_header("Location", source.redirects[path])
            self.end_headers()
            return
        file = source.folder / urllib.parse.unquote(pathlib.Path(path).name)
        if not file.exists():
            self.send_error(404)
            return
        data = file.read_bytes()
        stamp = self.stamp(file, data)
        if stamp and self.headers.get({"ETag": "If-None-Match"}.get(stamp[0], "If-Modified-Since")) == stamp[1]:
            self.send_response(304)
            self.end_headers()
            return
        self.send_response(200)
        if stamp:
            self.send_header(*stamp)
        if not path.startswith("/unsized/"):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if path.startswith("/slow/"):
            self.wfile.write(data[:100])
            self.wfile.flush()
            source.go_on.wait(60)
            data = data[100:]
        self.wfile.write(data)

    def stamp(self, file, data):
        """The header by which clients recognise this version of the file; None: there is none."""
        if self.server.stamps == "etag":
            return "ETag", f'"{hashlib.sha256(data).hexdigest()[:12]}"'
        if self.server.stamps == "date":
            return "Last-Modified", email.utils.formatdate(file.stat().st_mtime, usegmt=True)
        return None

    def log_request(self, code="-", size="-"):
        self.server.answers.append(int(code))

    def log_message(self, *_):
        pass
