"""Serve a page that trains on the handwritten digits in the browser, on its GPU where it has one.

From the root of the repository::

    python examples/browser/serve.py FOLDER

The folder has a full release of Pyodide, which is Python in WebAssembly, with its NumPy. weft and
what it imports come from this environment, since all of it but NumPy is pure Python. What the page
reports is printed here.
"""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import typer

PAGE = Path(__file__).with_name("index.html")
PROGRAM = Path(__file__).with_name("train.py")
PACKAGES = (
    "weft", "weft_passes", "weft_tiling", "weft_c", "weft_numpy", "weft_webgpu",
    "opt_einsum", "platformdirs", "pluggy",
)  # fmt: skip


def packages() -> bytes:
    """Return an archive of weft, what it imports, and the entry points that name its plugins."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name in PACKAGES:
            spec = find_spec(name)
            if spec is None or spec.origin is None:
                raise SystemExit(f"This example needs {name}: pip install weftc")
            folder = Path(spec.origin).parent
            for path in folder.rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    archive.write(path, path.relative_to(folder.parent))
        weft = distribution("weftc")
        for name in ("METADATA", "entry_points.txt"):
            archive.writestr(f"weftc-{weft.version}.dist-info/{name}", weft.read_text(name) or "")
    return file.getvalue()


def digits() -> bytes:
    """Return the images and labels of the digits in NumPy's format."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("This example needs sklearn: pip install 'weftc[demo]'") from None
    data = load_digits()
    file = BytesIO()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    np.savez_compressed(file, images=images, labels=labels)
    return file.getvalue()


class Handler(SimpleHTTPRequestHandler):
    """Serves the page, and the files of Pyodide if there is a folder with them."""

    def __init__(self, *args: Any, files: dict[str, bytes], **options: Any) -> None:
        self.files = files
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Send a file of the page, or one of Pyodide."""
        content = self.files.get(self.path.partition("?")[0])
        if content is None:
            self.path = self.path.removeprefix("/pyodide")
            super().do_GET()
            return
        kind = "text/html" if self.path.startswith("/?") or self.path == "/" else "text/plain"
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        """Print what the page reports."""
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()

    log_message = staticmethod(lambda *args: None)  # type: ignore[assignment]  # of requests


def main(
    pyodide: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="A full release of Pyodide.")
    ],
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
) -> None:
    """Serve the page until this is interrupted."""
    files = {
        "/": PAGE.read_bytes(),
        "/train.py": PROGRAM.read_bytes(),
        "/packages.zip": packages(),
        "/digits.npz": digits(),
    }
    handler: Any = partial(Handler, files=files, directory=str(pyodide))
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    typer.run(main)
