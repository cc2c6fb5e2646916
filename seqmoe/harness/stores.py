"""The stores of one sweep: one file for each host whose runs it gathers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from seqmoe.harness.record import Record
from seqmoe.harness.store import Store, store_path


class Stores:
    """The stores of one suite below ``results``, each opened when a record of its host is first asked for.

    ``hosts`` are opened at once: a second sweep on one of them is an `InputError` before anything runs.
    """

    def __init__(self, results: Path, suite: str, hosts: list[str]) -> None:
        self._results, self._suite = results, suite
        self._open: dict[str, Store[Record]] = {}
        self._closing = ExitStack()
        try:
            for host in hosts:
                self.of(host)
        except BaseException:
            self._closing.close()
            raise

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def of(self, host: str) -> Store[Record]:
        """The store of one host."""
        if host not in self._open:
            self._open[host] = self._closing.enter_context(Store(store_path(self._results, host, self._suite)))
        return self._open[host]

    @property
    def records(self) -> tuple[Record, ...]:
        """All records of the opened stores, of one host after another."""
        return tuple(record for store in self._open.values() for record in store.records)

    @property
    def place(self) -> Path:
        """Where a person finds the records (see `stores_place`)."""
        return stores_place(self._results, self._suite, list(self._open))

    def append(self, record: Record) -> None:
        """Write one record to the store of its host; it is on the disk when this returns."""
        self.of(record.environment["host"]).append(record)


def stores_place(results: Path, suite: str, hosts: list[str]) -> Path:
    """Where a person finds the records: the file of the only host, or the folder of all hosts."""
    return store_path(results, hosts[0], suite) if len(hosts) == 1 else results
