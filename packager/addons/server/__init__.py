"""The SageMaker API on one machine: its jobs, endpoints and pages."""
