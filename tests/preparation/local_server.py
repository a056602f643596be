"""Stand-ins for the public sites of the data sets: archives with the real layout, and a local server that can fail.

dataset = write_dataset(root, "wmt14-en-de", train, val, test)
with LocalServer(root) as server:
    fetch(dataset, directory, mirror=server.url)
"""

import gzip
import hashlib
import io
import tarfile
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from scratchformer.preparation.datasets import DATASETS, ParallelText

LANGUAGE_OF_NEIGHBOURS = "cs"


# Archives -------------------------------------------------------------------------------------------------------------


def write_dataset(root, name, train, val, test):
    """Write the files of a data set below `root`, each at the path of its URL.

    train, val, test: lists of (source, target) sentences; those of `train` go to the parts in turn.

    Returns the entry of DATASETS, with the checksums of these files.
    """
    dataset = DATASETS[name]
    n_parts = len(dataset.train)
    contents = [(part, train[index::n_parts]) for index, part in enumerate(dataset.train)]
    sentences = {
        text: [pair[side] for pair in pairs]
        for parallel, pairs in [*contents, (dataset.val, val), (dataset.test, test)]
        for side, text in enumerate((parallel.source, parallel.target))
    }
    of_origin = defaultdict(dict)
    for text, lines in sentences.items():
        of_origin[text.origin][text.member] = encoded(text.member or text.origin.name, lines)
    origins = {origin: write_origin(root, origin, members) for origin, members in of_origin.items()}

    def here(parallel):
        return ParallelText(*(text._replace(origin=origins[text.origin]) for text in parallel))

    return replace(dataset, train=tuple(map(here, dataset.train)), val=here(dataset.val), test=here(dataset.test))


def encoded(name, lines):
    """The bytes of a text file with this name."""
    if name.endswith(".sgm"):
        segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, start=1))
        return f'<srcset setid="test">\n<doc docid="one">\n<p>\n{segments}</p>\n</doc>\n</srcset>\n'.encode()
    data = "".join(line + "\n" for line in lines).encode()
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data


def write_origin(root, origin, members):
    """Write a downloadable file, which also contains other languages if it is an archive -> its RemoteFile"""
    path = root / urlsplit(origin.url).path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    if list(members) == [""]:
        path.write_bytes(members[""])
    else:
        others = {f"{name}.{LANGUAGE_OF_NEIGHBOURS}": b"jina rec\n" for name in members}
        write_tar(path, [regular(name, data) for name, data in {**others, **members}.items()])
    return described(origin, path)


def described(origin, path):
    """`origin` with the checksum that `path` has."""
    algorithm = origin.checksum.partition(":")[0]
    return origin._replace(checksum=f"{algorithm}:{hashlib.new(algorithm, path.read_bytes()).hexdigest()}")


def regular(name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member, data


def write_tar(path, members):
    """members: (TarInfo, bytes) in order."""
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))


# The server -----------------------------------------------------------------------------------------------------------


class LocalServer:
    """Serves the files below `root` at `url` until the end of the with statement.

    next_answers  functions of the handler that answer the next requests instead, one for each
    always        the function that answers all later requests
    received      (path, headers) of all requests, the oldest first
    """

    def __init__(self, root):
        self.root = root
        self.next_answers = []
        self.always = serve
        self.received = []

        class Handler(BaseHTTPRequestHandler):
            local_server = self

            def do_GET(self):
                local = self.local_server
                local.received.append((self.path, dict(self.headers)))
                answer = local.next_answers.pop(0) if local.next_answers else local.always
                with suppress(ConnectionError):  # the client did not wait for the end
                    answer(self)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def serve(handler, ranges=True, n_bytes=None, content_encoding=None):
    """Send the file, or the requested range of it.

    ranges   False for a server that always sends the whole file
    n_bytes  how much of the body is sent before the connection ends; None for all
    """
    path = handler.local_server.root / handler.path.lstrip("/")
    if not path.is_file():
        handler.send_error(404)
        return
    body = path.read_bytes()
    begin = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-")) if "Range" in handler.headers else 0
    begin *= ranges
    if begin and begin >= len(body):
        status(416)(handler)
        return
    handler.send_response(206 if begin else 200)
    if begin:
        handler.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
    handler.send_header("Content-Length", str(len(body) - begin))
    if content_encoding:
        handler.send_header("Content-Encoding", content_encoding)
    handler.end_headers()
    handler.wfile.write(body[begin:] if n_bytes is None else body[begin : begin + n_bytes])


def status(code):
    """An answer without a file."""

    def answer(handler):
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def broken_off(n_bytes):
    """The connection ends after `n_bytes` of the body."""
    return lambda handler: serve(handler, n_bytes=n_bytes)
