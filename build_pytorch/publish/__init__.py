"""Publishing with Flox: preconditions, evidence, one package after the other."""
