"""What is built and what is known of it: the ledger, result links, evidence."""
