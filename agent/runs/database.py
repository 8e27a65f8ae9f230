"""The database of runs: one SQLite file on the master's own disk. Ranks can neither read nor write it.

It contains the nodes that runs and tasks have claimed, the states of all runs with the queue, and the specs that this
master has accepted. Each change is one transaction, so after a crash it is either complete or undone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import write_atomically

FILE: Final = ".deepcdk/runs.sqlite"
"""Path in the login user's home."""
BACKUP: Final = f"{FILE}.backup"
"""Path in the login user's home of this master's last backup. It replaces a damaged database."""
BUSY_S: Final = 600.0
"""Maximum wait of a transaction for another one. `fab clean` reads the specs of all runs in one transaction."""
MIGRATIONS: Final = (
    """
    CREATE TABLE claims (
        place INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        task TEXT NOT NULL,
        every_node INTEGER NOT NULL CHECK (every_node IN (0, 1))
    ) STRICT;
    CREATE TABLE claimed_nodes (
        run_id TEXT NOT NULL REFERENCES claims (run_id) ON DELETE CASCADE,
        name TEXT NOT NULL UNIQUE,
        instance_id TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE TABLE specs (run_id TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT;
    CREATE TABLE states (
        run_id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        document TEXT NOT NULL,
        place INTEGER UNIQUE CHECK ((place IS NOT NULL) = (state = 'queued')),
        summary TEXT
    ) STRICT;
    """,
)
"""Statements for each version of the schema, which change the version before it. `user_version` is their number.

`states.summary` contains JSON values of the version that stored them: set it to NULL if their fields change.
"""
_local = threading.local()


class NewerSchemaError(sqlite3.OperationalError):
    """Report a database that a newer version of deepcdk has written."""


class DatabaseError(OSError):
    """Report a database that cannot be read or written, with advice. Carries `path`."""

    def __init__(self, path: Path, error: sqlite3.Error, advice: str = "") -> None:
        self.path = path
        super().__init__(f"the database of runs, {path} on the master: {error}; {advice or _advice(error)}")


def _advice(error: sqlite3.Error) -> str:
    advice = "free space on the master's disk" if "full" in str(error) else "correct the cause that SQLite reports"
    if isinstance(error, NewerSchemaError):
        advice = "update deepcdk where you run `fab`"
    return f"{advice}, then repeat the command"


@contextlib.contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Change the database in one transaction during the block; yield its connection.

    Other processes wait, up to BUSY_S. A nested block joins the outer transaction. An exception undoes the changes. If
    the database is damaged, its backup replaces it, with a warning on stderr. Raises DatabaseError.
    """
    if outer := getattr(_local, "connection", None):
        yield outer
        return
    with _connected() as connection:
        connection.execute("BEGIN IMMEDIATE")
        _local.connection = connection
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            _local.connection = None
            if connection.in_transaction:
                connection.rollback()


def rows(query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query with these parameters; [] if the database does not exist yet. Raises DatabaseError.

    Inside a `transaction`, the query sees its changes. If the database is damaged, its backup replaces it, with a
    warning on stderr.
    """
    if outer := getattr(_local, "connection", None):
        return list(outer.execute(query, values))
    if not _path().exists():
        return []
    with _connected() as connection:
        return list(connection.execute(query, values))


def backup() -> bytes:
    """Write a copy of the database to BACKUP, and return its bytes. Raises DatabaseError, also if the copy is damaged.

    In the copy, `is_complete` is false, because a restored backup may lack the newest states.
    """
    copy = Path.home() / BACKUP
    with _connected() as connection:
        partial = copy.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(partial)) as target:
            connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            target.execute("PRAGMA application_id = 0")
            _check(target)
        partial.replace(copy)
        return copy.read_bytes()


def is_complete() -> bool:
    """Return whether the database contains the states of all runs. False for a new database and a restored backup."""
    return rows("PRAGMA application_id") == [(1,)]


def mark_complete() -> None:
    """Store that the database contains the states of all runs."""
    with transaction() as changing:
        changing.execute("PRAGMA application_id = 1")


def stamp() -> tuple[tuple[int, int], ...]:
    """Return modification time (ns) and size (bytes) of each file of the database. They differ after a change.

    Missing files are left out.
    """
    found = []
    for path in (_path(), _path().with_name(f"{_path().name}-wal")):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size))
    return tuple(found)


def restore(copy: Path) -> None:
    """Replace this database with the backup of another master in the file `copy`.

    Does nothing if this master has already accepted a run. Raises DatabaseError if the backup is damaged or was made by
    a newer version.
    """
    with contextlib.closing(sqlite3.connect(copy)) as source:
        try:
            _check(source)
        except sqlite3.Error as error:
            raise DatabaseError(copy, error, "this backup cannot be used") from error
        with _connected() as connection:
            if not connection.execute("SELECT 1 FROM specs").fetchone():
                source.backup(connection)
                _migrate(connection)


def _path() -> Path:
    return Path.home() / FILE


@contextlib.contextmanager
def _connected() -> Iterator[sqlite3.Connection]:
    """Open the database for a block, create it if it is missing, and yield the connection.

    If the database is damaged, its backup replaces it. Raises DatabaseError, also if the damage is found in the block.
    """
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            opened = _open(path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            _replace_damaged(path, lock, error)
            fcntl.flock(lock, fcntl.LOCK_SH)
            opened = _open(path)
        with contextlib.closing(opened):
            yield opened
    except sqlite3.Error as error:
        if _is_damage(error):
            _replace_damaged(path, lock, error)
            raise DatabaseError(path, error, "it was replaced, as a warning reports; repeat the command") from error
        raise DatabaseError(path, error) from error
    finally:
        os.close(lock)


def _is_damage(error: sqlite3.Error) -> bool:
    return type(error) is sqlite3.DatabaseError  # its subclasses report other errors


def _open(path: Path) -> sqlite3.Connection:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new database to write-ahead logging. Tries again for BUSY_S while other processes do the same.

    SQLite ignores its timeout here and reports a busy database immediately.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection) -> None:
    """Update the schema to the latest version, if it is older, in one transaction.

    Raises sqlite3.OperationalError if a newer deepcdk made the database.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        known = f"this version supports schemas up to {len(MIGRATIONS)}"
        raise NewerSchemaError(f"a newer version of deepcdk wrote it, with schema {version}; {known}")
    if version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been faster
        for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
            for statement in statements.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def _check(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError("its pages are malformed")


def _replace_damaged(path: Path, lock: int, error: Exception) -> None:
    """Put the last backup in place of a damaged database, or remove the database if there is no backup.

    The damaged file is kept under another name. A warning with `error` is printed. Each process holds a shared `lock`
    while it has the database open. This call waits until no other process has it open. It does nothing if another
    process has replaced the database meanwhile.
    """
    damaged = path.stat().st_ino
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not path.exists() or path.stat().st_ino != damaged:
        return
    kept, copy = path.with_name(f"{path.name}.damaged-{time.time_ns()}"), Path.home() / BACKUP
    os.link(path, kept)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    if copy.exists():
        write_atomically(path, copy.read_bytes(), mode=0o600)
        now = f"the backup of {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(copy.stat().st_mtime))} UTC replaces it"
    else:
        path.unlink()
        now = "there is no backup, so no run is queued: to queue a run again, `fab resume ID`"
    print(
        f"warning: the database of runs is damaged ({error}); {now}. The damaged file is kept as {kept}",
        file=sys.stderr,
    )
