"""The demonstration behind `scripts/demo`: every file under a folder becomes a task; four workers do them.

Usage: demo.py [DIR]     (default: the sources of Python's standard library)
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEADLINE_SECONDS = 600


def run(*command: str, **options: object) -> str:
    """Run a command, show it, and return what it printed."""
    print(f"$ {' '.join(command[:2] if len(' '.join(command)) > 200 else command)}", flush=True)
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
    return str(done.stdout)


def files_under(folder: Path) -> list[Path]:
    """Return the regular files under `folder` that can be read and named in JSON."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            path.as_posix().encode("utf-8")
        except UnicodeEncodeError:
            continue
        if path.is_file() and not path.is_symlink() and "\n" not in str(path) and "\\" not in str(path):
            found.append(path)
    return found


def query(database: Path, sql: str) -> list[tuple[object, ...]]:
    """Read the database with plain SQL, as anybody may."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def watch(database: Path, total: int) -> None:
    """Show progress until no task is open."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        counts = dict(query(database, "SELECT status, count(*) FROM work_queue GROUP BY status"))
        workers = dict(query(database, "SELECT state, count(*) FROM fleet_workers GROUP BY state"))
        done, failed = counts.get("done", 0), counts.get("failed", 0)
        states = ", ".join(f"{number} {state}" for state, number in sorted(workers.items())) or "none yet"
        print(f"  {done} of {total} done, {failed} failed; workers: {states}", flush=True)
        if done + failed == total:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"error: {counts} after {DEADLINE_SECONDS} s: see `fleet status` and the workers' log")
        time.sleep(0.5)


def wait_for_nobody(database: Path) -> None:
    """Wait until every worker and its supervisor has gone."""
    deadline = time.monotonic() + 60
    live = "SELECT (SELECT count(*) FROM worker_registry WHERE status IN ('active', 'terminating'))"
    live += " + (SELECT count(*) FROM worker_group WHERE status NOT IN ('stopped', 'failed'))"
    while query(database, live)[0][0]:
        if time.monotonic() > deadline:
            raise SystemExit("error: workers are still there after 60 s: see `fleet workers`")
        time.sleep(0.1)


def checked(database: Path, files: list[Path]) -> int:
    """Compare the stored results with `sha256sum`; return how many were compared."""
    rows = query(database, "SELECT payload_json, result_json FROM fleet_tasks WHERE status = 'done'")
    ours = {json.loads(str(payload))["path"]: json.loads(str(result)) for payload, result in rows}
    listing = subprocess.run(
        ["xargs", "-0", "sha256sum", "--"],
        input="\0".join(map(str, files)),
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    theirs = {line[66:]: line[:64] for line in listing.splitlines()}
    wrong = [path for path, digest in theirs.items() if ours.get(path, {}).get("sha256") != digest]
    if wrong or len(theirs) != len(files):
        raise SystemExit(f"error: {len(wrong)} results differ from sha256sum, for example {wrong[:3]}")
    return len(theirs)


def main() -> None:
    """Fill the queue, start workers, watch, stop them, check the results."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_paths()["stdlib"]).resolve()
    if not folder.is_dir():
        raise SystemExit(f"error: {folder} is not a folder: give one whose files are to be described")
    files = files_under(folder)
    if not files:
        raise SystemExit(f"error: there is no file under {folder}")
    workplace = Path(tempfile.mkdtemp(prefix="fleet-demo-"))
    database = workplace / "fleet.db"
    print(f"{len(files)} files under {folder}; the database is {database}")
    fleet, scaler = [sys.executable, "-m", "fleet"], [sys.executable, "-m", "fleet.cli.scaler"]
    at = ["--db-path", str(database)]
    jobs = workplace / "jobs.jsonl"
    with jobs.open("w") as lines:
        for path in files:
            lines.write(json.dumps({"task": "describe_file", "payload": {"path": str(path)}, "queue": "files"}) + "\n")
    print(run(*fleet, "init", *at), end="")
    print(run(*fleet, "enqueue", *at, "--from", str(jobs)), end="")
    started = time.monotonic()
    scaling = [*scaler, *at, "-v", "--target-workers"]
    print(run(*scaling, "4", "--", "--tasks", "checksums", cwd=HERE), end="")
    watch(database, len(files))
    seconds = time.monotonic() - started
    print(run(*scaling, "0", cwd=HERE), end="")
    wait_for_nobody(database)
    print(run(*fleet, "workers", *at), end="")
    failed = query(database, "SELECT id, error FROM fleet_tasks WHERE status <> 'done' LIMIT 5")
    if failed:
        raise SystemExit(f"error: some tasks did not succeed, for example {failed}")
    count = checked(database, files)
    totals = "sum(json_extract(result_json, '$.size')), sum(json_extract(result_json, '$.lines'))"
    size, lines_, words = query(
        database, f"SELECT {totals}, sum(json_extract(result_json, '$.words')) FROM fleet_tasks"
    )[0]
    print(f"{count} results equal sha256sum's: {size} bytes, {lines_} lines, {words} words, in {seconds:.1f} s.")
    if os.environ.get("FLEET_DEMO_KEEP"):
        print(f"Look around: sqlite3 -column -header {database} 'SELECT * FROM fleet_workers'")
    else:
        shutil.rmtree(workplace)
        print("The database was removed; set FLEET_DEMO_KEEP=1 to keep it.")


if __name__ == "__main__":
    main()
