"""Images deployed: SageMaker, HyperPod, Kubernetes, KServe, Docker Compose.

Others import `compose`, `sagemaker`, `wiring`.
"""
