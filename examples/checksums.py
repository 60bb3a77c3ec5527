"""A real job on real files: the SHA-256, size, line and word count of one file per task."""

import hashlib
from pathlib import Path

from fleet import Fleet

app = Fleet()


@app.task(queue="files", timeout=60)
def describe_file(path: str) -> dict[str, object]:
    """Return what a file is, read once, in pieces, so that its size does not matter."""
    digest, size, lines, words = hashlib.sha256(), 0, 0, 0
    inside_word = False
    with Path(path).open("rb") as file:
        while piece := file.read(1 << 16):
            digest.update(piece)
            size += len(piece)
            lines += piece.count(b"\n")
            words += len(piece.split()) - (inside_word and not piece[:1].isspace())
            inside_word = not piece[-1:].isspace()
    return {"sha256": digest.hexdigest(), "size": size, "lines": lines, "words": words}
