"""A web server from which archives are downloaded."""

import http.server
import pathlib
import threading


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
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # the tests have clients that leave


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # the name is the library's
        source = self.server
        source.requests.append(self.path)
        path = self.path.partition("?")[0]
        if path in source.redirects:
            self.send_response(302)
            self.send_header("Location", source.redirects[path])
            self.end_headers()
            return
        file = source.folder / pathlib.Path(path).name
        if not file.exists():
            self.send_error(404)
            return
        data = file.read_bytes()
        self.send_response(200)
        if not path.startswith("/unsized/"):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if path.startswith("/slow/"):
            self.wfile.write(data[:100])
            self.wfile.flush()
            source.go_on.wait(60)
            data = data[100:]
        self.wfile.write(data)

    def log_message(self, *_):
        pass
