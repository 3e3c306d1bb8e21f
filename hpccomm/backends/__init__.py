"""Backends: whatever communicates, leaf or combinator, behind one front door."""
