"""How good the tests are: small faults in the elaborated node, one at a time, and how many of them are found."""
