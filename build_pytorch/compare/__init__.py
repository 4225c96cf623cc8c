"""Compare two builds: workloads, rounds of processes, statistics, verdicts."""
