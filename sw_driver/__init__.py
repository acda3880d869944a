"""The driver: the client, its transports and the kvnode command."""
