"""Documents of the SageMaker API as requests of packager, and back; no sockets."""
