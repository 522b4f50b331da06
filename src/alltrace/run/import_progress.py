"""How an import is watched."""


class Watcher:
    """Progress of an import; the base class does nothing."""

    def looking(self) -> None:
        """The reports are looked for."""

    def listed(self, reports: int) -> None:
        """The number of reports to open."""

    def opened(self, reports: int) -> None:
        """The number of further reports that are open."""

    def planned(self, ranks: int, rows: int) -> None:
        """The number of ranks to read, and about how many rows they have."""

    def advance(self, rows: int) -> None:
        """The number of further rows that are done."""

    def rank_done(self, ranks: int) -> None:
        """The number of further ranks that are done."""
