"""Images deployed on platforms: SageMaker, HyperPod, Kubernetes, KServe, Docker Compose."""
