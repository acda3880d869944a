"""What benches are made of: the clocked bench itself, streams, messages of a node port, and the trace monitor."""
