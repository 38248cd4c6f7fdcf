"""The SageMaker API on this machine: HTTP, signatures, operations, endpoints, pages."""
