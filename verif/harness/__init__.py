"""The fast harness: a node's RTL as a Verilated library that runs whole batches of requests in C++."""
