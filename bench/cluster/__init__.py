"""Several hosts on one machine, made of Linux namespaces, for tests and benchmarks of what runs between hosts."""
