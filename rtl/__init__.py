"""The hardware, in Amaranth: no file, no network, no clock of the host is touched from here."""
