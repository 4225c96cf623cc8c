"""Building variants: the plan, the run of its builds, what their logs mean, the ledger."""
