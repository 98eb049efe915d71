#!/usr/bin/env python3
"""Trains on images in an object store: a server on this machine that answers as S3 does, and refuses one request in five.

    deploy/object-store.py ATA

ATA: a program with the feature `object-store`. Writes a folder of images, packs them in shards, and trains with two workers from the
folder and from s3://bucket/images: the parameters have to be the same bits, and no worker may have asked for more than its shards. Then
it takes the credentials away, which must end the run with an error that names them.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RUN = ["--workers", "2", "--task-time", "none", "--iterations", "20", "--model", "cnn:widths=4/4/8/16", "--task-batch", "8", "--budget", "8"]


class Store(BaseHTTPRequestHandler):
    """GET of objects and of ranges of them, in the address style of MinIO: /BUCKET/KEY."""

    protocol_version = "HTTP/1.1"
    folder = Path()
    is_open = True
    requests = Counter()

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        Store.requests["all"] += 1
        if not Store.is_open:
            return self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        if Store.requests["all"] % 5 == 0:
            Store.requests["refused"] += 1
            return self.answer(503, b"<Error><Code>SlowDown</Code></Error>")
        file = self.folder / self.path.removeprefix("/bucket/images/")
        if not file.is_file():
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        size = file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
        with open(file, "rb") as opened:
            opened.seek(begin)
            body = opened.read(end + 1 - begin)
        Store.requests["bytes"] += len(body)
        extra = {"Content-Range": f"bytes {begin}-{end}/{size}"} if asked else {}
        self.answer(206 if asked else 200, body, extra)

    def answer(self, status, body, extra={}):
        self.send_response(status)
        headers = {"Content-Length": len(body), "ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"} | extra
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def batches(folder):
    """CIFAR-10's layout, with random pixels."""
    folder.mkdir()
    for name in [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]:
        records = [bytes([record % 10]) + os.urandom(3072) for record in range(10_000)]
        (folder / name).write_bytes(b"".join(records))


def main():
    ata = str(Path(sys.argv[1]).resolve()) if len(sys.argv) == 2 else sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches(folder / "batches")
        subprocess.run([ata, "data", "pack", "batches", "packed", "--shard-mb", "1"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        Store.folder = folder / "packed"
        server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        credentials = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "here"}
        place = {"AWS_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "AWS_ALLOW_HTTP": "true"}
        environment = os.environ | credentials | place | {"ATA_CACHE_DIR": str(folder / "cache")}

        def up(data, out):
            command = [ata, "up", "--data", data, "--out", out, "--dashboard", "off", *RUN]
            return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

        digests = []
        for data, out in (("packed", "folder"), ("s3://bucket/images", "store")):
            ended = up(data, out)
            if ended.returncode:
                sys.exit(ended.stderr)
            digests.append(json.loads((folder / out / "summary.json").read_text())["parameters_sha256"])
            print(f"{data:20} parameters {digests[-1][:16]}")
        requests = Store.requests
        whole = sum(file.stat().st_size for file in Store.folder.iterdir())
        print(f"{requests['all']} requests, of which {requests['refused']} were refused; {requests['bytes'] / 1e6:.1f} of {whole / 1e6:.1f} MB")
        Store.is_open = False
        refused = up("s3://bucket/images", "refused")
        print(f"without access: exit code {refused.returncode}: {refused.stderr.strip().splitlines()[-1]}")
        if digests[0] != digests[1] or refused.returncode != 69 or "AWS_ACCESS_KEY_ID" not in refused.stderr:
            sys.exit("that is wrong")


if __name__ == "__main__":
    main()
