"""What every rank is doing: the flight record, the side channel between ranks, and the watchdog that reads both."""
