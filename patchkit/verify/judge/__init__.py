"""From results to verdicts. Pure: no files, no processes, no torch."""
